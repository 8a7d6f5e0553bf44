// The processes of a program that the command runs: how it and those that it leaves behind end, and what each
// of them kept in its ledger (report/ledger.hpp), whichever way it ended. What cannot be known of an end is
// not said. The files are untrusted, as all that the program can write.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/report.hpp"
#include "tools/scratch.hpp"

namespace cupool::tools {

struct End {
  enum class How {
    kUnknown,
    kRuns,      // still
    kExited,    // with the exit code `number`
    kKilled,    // by the signal `number`
    kEnded,     // by itself; its parent knows how
    kReplaced,  // by another program, with exec
    kCutOff,    // killed, crashed or replaced: it ran no exit handler, and only its parent knows more
  };
  How how = How::kUnknown;
  int number = 0;

  static End of_status(int status);
  bool is_failure() const { return how == How::kKilled || (how == How::kExited && number != 0); }
  // It failed, or may have.
  bool is_doubtful() const { return is_failure() || how == How::kCutOff; }
  // As a shell gives it.
  int code() const { return how == How::kKilled ? 128 + number : number; }
  // "was killed by SIGSEGV", or empty.
  std::string words() const;
};

struct Process {
  int64_t pid = 0;
  Report report;
  End end;
  bool is_whole = true;             // false: it counted more than this
  uint64_t device_bytes = 0;        // as CUPOOL_WATCH_DEVICE saw them
  std::vector<std::string> advice;  // for doctor to find
};

struct Outcome {
  End program;            // kUnknown: it could not be started
  uint64_t ended_ns = 0;  // when, in now_ns()
  std::vector<Process> processes;
  bool has_running = false;         // processes of the program that were left, and have not ended yet
  std::vector<std::string> faults;  // files that could not be read, and why
};

// The settings for a program that is about to be executed: where its processes keep their counts.
void keep_counts(const Scratch& scratch);
// Becomes the parent of processes that the program leaves behind.
void adopt_orphans();
// Waits for the program; for what it leaves behind, a few seconds.
Outcome wait_for_all(pid_t program, const Scratch& scratch);

}  // namespace cupool::tools
