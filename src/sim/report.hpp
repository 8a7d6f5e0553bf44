// The end of the process: the JSON report, the oracle's stories, and exit code 86 when there was a hazard.
#pragma once

namespace cupool::sim {

// Arms the end-of-process work; called once, when the driver starts.
void start_report();

}  // namespace cupool::sim
