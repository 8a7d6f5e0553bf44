// Reads what a program did from the files of others. Trusts nothing: bytes that are no such file end in a
// sentence. cupool's own trace is read by tools/, which has its reader.
#pragma once

#include <string>
#include <string_view>

#include "replay/program.hpp"

namespace cupool::replay {

// Lines of `a ID BYTES`, `f ID`, `k STREAM`, `s STREAM`, each perhaps with a thread behind it, and then
// perhaps with a time in microseconds (docs/replay.md).
bool read_text(std::string_view text, Program* out, std::string* error);
// The log of rmm.mr.LoggingResourceAdaptor.
bool read_rmm_log(std::string_view text, Program* out, std::string* error);
// What torch.cuda.memory._dump_snapshot() writes.
bool read_pytorch_snapshot(std::string_view bytes, Program* out, std::string* error);

// Which of them a file is; none of them reads it: nullptr.
using Reader = bool (*)(std::string_view, Program*, std::string*);
Reader reader_of(std::string_view bytes);

}  // namespace cupool::replay
