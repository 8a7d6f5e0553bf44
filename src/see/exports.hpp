// A trace in the forms that other viewers read. Each writes to a file that is open; whether that worked is in
// the file's error flag. Nothing else is touched.
#pragma once

#include <cstdint>
#include <cstdio>

#include "see/holders.hpp"
#include "see/model.hpp"
#include "see/moments.hpp"

namespace cupool::see {

// PyTorch's memory snapshot, for its memory viewer. `last`: so many events of each device, 0: all.
void write_pytorch(std::FILE* file, const Model& model, const Holders& holders, uint64_t last);
void write_perfetto(std::FILE* file, const Model& model, const Holders& holders, const Picture& picture);
void write_pprof(std::FILE* file, const Model& model, const Holders& holders, const Picture& picture);
void write_speedscope(std::FILE* file, const Model& model, const Holders& holders, const Picture& picture);
// A line for each stack: frames with semicolons, and the bytes held at the peak.
void write_folded(std::FILE* file, const Model& model, const Holders& holders, const Picture& picture);
// The columns of RMM's log: Thread,Time,Action,Pointer,Size,Stream.
void write_csv(std::FILE* file, const Model& model);

}  // namespace cupool::see
