// What other allocators would need for the same program, by their rules alone: PyTorch's cache, with segments
// of fixed sizes and with ones that grow; bins of exact sizes, which keep all they ever had; and the driver
// without any cache. No order of work plays a part but that a driver's free waits for it.
#pragma once

#include "replay/player.hpp"

namespace cupool::replay {

enum class Rules { kPyTorch, kExpandable, kExactBins, kDriver };
inline constexpr Rules kAllRules[] = {Rules::kPyTorch, Rules::kExpandable, Rules::kExactBins, Rules::kDriver};
const char* name_of(Rules rules);

// `capacity`: of each device.
Figures play_by(Rules rules, const Program& program, uint64_t capacity);

}  // namespace cupool::replay
