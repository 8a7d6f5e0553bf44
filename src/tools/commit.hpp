// The commit that the command was built from, as git names it in twelve digits, or "unknown".
#pragma once

namespace cupool::tools {
extern const char kCommit[];
}  // namespace cupool::tools
