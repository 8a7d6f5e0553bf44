// The end of the process: the JSON report, the oracles' stories, and the exit code of what was found.
#pragma once

namespace cupool::sim {

constexpr int kHazardExit = 86;
constexpr int kHangExit = 87;  // only because of waits that a preloaded library added
constexpr int kAddedWaitExit = 88;
constexpr int kOwnHangExit = 89;

// Arms the end-of-process work; called once, when the driver starts.
void start_report();
// Ends the process at once, with all that was found and this exit code. pre: the state mutex.
[[noreturn]] void end_with_report(int code);

}  // namespace cupool::sim
