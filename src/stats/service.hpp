// How the calling thread's last allocation was served: noted on the paths that search for a block or ask the
// driver, for whoever is told of the allocation afterwards. The hot path notes nothing: who wants to know
// says kKept before the call. Thread-local; no lock.
#pragma once

#include <cstdint>

namespace cupool::stats {

struct Service {
  enum class How : uint8_t { kKept, kSlab, kRange, kAfterWait, kMiss, kDriver };
  enum class By : uint8_t { kPool, kWhole, kManaged, kSpilled, kNative, kDriver };
  How how = How::kKept;
  By by = By::kPool;
};

inline constinit thread_local Service last_service{};

}  // namespace cupool::stats
