// The ledger: a file in which the process keeps its counts while it runs (CUPOOL_COUNTS_FILE), so that
// `cupool doctor` can read them at any moment and however the process ends. The counts themselves are laid
// over the file (stats/sheet.hpp); beside them stand who the process is, its mode, and the last shortage,
// which are written when they change. Writing takes no lock, allocates nothing and is safe in a signal
// handler; without a file each call is a test of one word. Reading trusts nothing in the file and follows no
// pointer there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "neighbours/identity.hpp"
#include "stats/counters.hpp"

namespace cupool::report {

// First use of CUDA, after the facts were noted: makes the file, if the options name one. An image of the
// program that exec replaced keeps its own file.
void begin_ledger();
// In a fork child, before anything else is forgotten: the file is the parent's.
void leave_ledger_after_fork();

// The mode may have changed.
void note_mode();
// The cause and the advice of a shortage; `advice` ends with an empty text.
void note_shortage(const char* cause, const char (*advice)[160], size_t most);
// The process ends, and knows it.
void note_end();
// So many bytes of the device are in use, as the driver says.
void note_device_use(int device, uint64_t bytes);

// What one process has left.
struct Ledger {
  neighbours::Identity who = {};
  std::string program;
  std::string mode;
  std::string mode_reason;
  std::string shortage;
  std::vector<std::string> shortage_advice;
  bool has_ended = false;   // it ran its exit handlers, or _exit
  bool is_whole = true;     // false: there were more counts
  uint64_t device_use = 0;  // the most, added up over the devices; 0: nobody looked
  stats::Sums sums;         // without the figures that only the driver's own pool knows

  // None: it is no such file, or not yet, and `error` is empty; or it cannot be read, as `error` says.
  static std::optional<Ledger> read(const char* path, std::string* error);
};

}  // namespace cupool::report
