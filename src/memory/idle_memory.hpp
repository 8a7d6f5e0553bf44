// Idle memory of all allocators: how much there is, and when it goes back although nobody here needs it. No
// lock.
#pragma once

#include <atomic>

#include "memory/allocators.hpp"

namespace cupool::memory {

using allocator::kEveryDevice;

class IdleMemory {
 public:
  constexpr IdleMemory(Allocators& allocators, order::Timelines& order)
      : allocators_(allocators), order_(order) {}

  // Releases everything idle that such an effort reaches, because memory is needed elsewhere. Returns the
  // bytes released.
  // `asking`: the context of the request; others are hardly waited for. Null: nobody's.
  uint64_t release_everything(int device = kEveryDevice, allocator::Effort effort = allocator::Effort::kAll,
                              driver::Context asking = nullptr);
  // How many bytes that would free on a device.
  uint64_t releasable_bytes(int device);
  // Keeps at most `keep` free bytes of each kind in each context; returns the bytes released.
  uint64_t trim(uint64_t keep);
  // Overrides CUPOOL_MAX_CACHED, for future contexts too.
  void set_max_cached(uint64_t bytes) { allocators_.set_max_cached(bytes); }
  // The program has just waited for all its work: a good moment to release memory unused for CUPOOL_DECAY_MS.
  void decay();
  // The same, called now and then by a thread of ours, for a program that makes no call any more. `goes_on`
  // is asked before each call of the driver; false: enough for now.
  void decay_quiet(bool (*goes_on)());
  // Releases what it can of a device without making anybody wait, because another process needs `bytes`;
  // returns the bytes released.
  uint64_t release_for_others(int device, uint64_t bytes, bool (*goes_on)());
  // Idle managed memory may occupy an unknown part of the device: before a question about free memory, keep
  // little of it.
  void release_managed(driver::Context context);
  // The largest free range or block of a device; 0 when the lock is taken (with `wait`: for more than a
  // moment).
  uint64_t largest_free(int device, bool wait);

 private:
  uint64_t release(const allocator::Idle& which);

  Allocators& allocators_;
  order::Timelines& order_;
  std::atomic<uint64_t> decayed_at_{0};  // milliseconds
};

}  // namespace cupool::memory
