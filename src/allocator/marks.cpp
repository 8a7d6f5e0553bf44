// See marks.hpp.
#include "allocator/marks.hpp"

#include <atomic>

namespace cupool::allocator {

namespace {

// The driver counts from one and will never reach these.
constexpr uint64_t kFirstLife = uint64_t{1} << 62;
constinit std::atomic<uint64_t> lives{kFirstLife};

}  // namespace

stats::Event counter_of(Taint reason) {
  return static_cast<stats::Event>(static_cast<unsigned>(stats::Event::tainted_by_export) +
                                   static_cast<unsigned>(reason));
}

uint64_t next_life() { return lives.fetch_add(1, std::memory_order_relaxed); }

}  // namespace cupool::allocator
