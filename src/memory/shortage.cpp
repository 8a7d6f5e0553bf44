// What is tried when the driver has refused memory. There are two ways in, which meet in release_here(), and
// each rung is climbed only if the one below it was not enough. Nothing is waited for that the rungs before
// could have done without.
//
// An allocation that cupool serves:
//   1. The allocator itself. The pool (pool/search_grow.cpp, Search::grow) asks for a segment of the size it
//      prefers, then of the exact size; then it waits for what the program's frees would have waited for
//      (take_after_frees), and asks again; then for all work, gives all its free memory back, and asks again,
//      as often as upstream/retry.hpp allows while other threads give or take. Blocks that are not cut
//      (dedicated/releases.cpp, release_enough) give back what is done, then what frees would
//      have waited for, then the oldest idle blocks.
//   2. ShortageLadder::allocate, here: all allocators give back (release_here), with growing effort
//      (allocator::kEfforts), and after each the first rung again.
//   3. Other processes are asked (ask_others), and the first rung again; what they gave may be enough only
//      together with ours.
//   4. The driver's own pool (CUPOOL_FALLBACK), then host memory (CUPOOL_SPILL), if the user wants them.
//   5. The report of the failure (note_failure).
//
// A call of the program's that the driver has refused (hooks/room.hpp, call_with_room): with growing effort
// hooks::make_room asks ShortageLadder::release_for_call, which is rung 2 and, with the last effort, rung 3;
// after each the call is made again. It does not come through rung 1: nobody asks us for a block.
//
// Holds no lock.
#include "memory/shortage.hpp"

#include <utility>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "config/options.hpp"
#include "driver/mapping.hpp"
#include "stats/device.hpp"
#include "upstream/limit.hpp"
#include "upstream/upstream.hpp"

namespace cupool::memory {

using allocator::Effort;
using allocator::kDeclined;
using allocator::Short;
using driver::kNotSupported;
using driver::kOutOfMemory;
using driver::kSuccess;

// The last resorts: `first` has already released what it could, so all other allocators do; then the driver's
// own pool and then host memory are tried if the user enabled that; then the failure is reported.
Status ShortageLadder::allocate(Allocator& first, driver::Source& source, driver::Context context,
                                uint64_t bytes, Address* out) {
  const bool may_take = first.may_take(context, bytes);
  // What lies on other devices does not help, and to give it back would wait for the work there.
  int device = kEveryDevice;
  if (!source.is_host_visible() && !first.device_of(context, &device) && driver_->device(&device) != kSuccess)
    device = kEveryDevice;
  Status status = kOutOfMemory;
  for (const Effort effort : allocator::kEfforts) {
    if (may_take && status == kOutOfMemory && release_here(device, context, bytes, effort))
      status = first.allocate(context, bytes, out);
  }
  if (may_take && status == kOutOfMemory && ask_others(device, bytes)) {
    status = first.allocate(context, bytes, out);
    // What others gave back may be enough only together with ours.
    if (status == kOutOfMemory && release_here(device, context, bytes))
      status = first.allocate(context, bytes, out);
  }
  // Or another thread has given memory back since: the background thread, or one in another context.
  if (may_take && status == kOutOfMemory && catch_up_on_returns())
    status = first.allocate(context, bytes, out);
  if (status != kOutOfMemory) return status == kDeclined ? kOutOfMemory : status;
  if (NativePool* const fallback = allocators_.native();
      fallback != nullptr && &first == &allocators_.pools() && may_take) {
    status = fallback->allocate(context, bytes, out);
    if (status == kSuccess) stats::device(device).count(stats::DeviceCounter::fallback_allocations);
    if (status == kNotSupported || status == kDeclined) status = kOutOfMemory;
  }
  if (status == kOutOfMemory && &source == device_memory_)
    status = allocate_spilled(context, bytes, device, out);
  if (status == kOutOfMemory) first.note_failure(context, bytes);
  return status;
}

// While a block of this size that spilled lies idle: takes what the device has without a wait, else that
// block if its work is done. To make room on the device would wait for all work. False: do so.
bool ShortageLadder::allocate_at_once(driver::Context context, uint64_t bytes, Address* out) {
  const mapped::Spill* const source = spill();
  DedicatedBlocks* const spilled = source == nullptr ? nullptr : allocators_.find_dedicated(*source);
  if (spilled == nullptr || !spilled->has_idle(context, bytes) || allocators_.is_native_first()) return false;
  DedicatedBlocks* const blocks =
      allocators_.is_dedicated_only() ? allocators_.dedicated_of(*device_memory_) : nullptr;
  const Status status = blocks != nullptr ? blocks->allocate(context, bytes, out, Short::kLeave)
                                          : allocators_.pools().allocate(context, bytes, out, Short::kLeave);
  if (status == kSuccess && blocks != nullptr) allocators_.forget_stale(*blocks, *out, bytes);
  if (status != kOutOfMemory) return status == kSuccess;
  int device = 0;
  if (!spilled->device_of(context, &device) || !spilled->take_done(context, bytes, out)) return false;
  count_spilled(device, bytes);
  return true;
}

// Returns whether it was the user's limit that kept the block off the device.
bool ShortageLadder::count_spilled(int device, uint64_t bytes) {
  const bool is_limit = is_above_limit(device, bytes);
  stats::Device& counts = stats::device(device);
  counts.count(stats::DeviceCounter::spilled_allocations);
  counts.count(stats::DeviceCounter::spilled_bytes, bytes);
  if (is_limit) counts.count(stats::DeviceCounter::spilled_for_limit);
  return is_limit;
}

Status ShortageLadder::allocate_spilled(driver::Context context, uint64_t bytes, int device, Address* out) {
  mapped::Spill* const source = spill();
  DedicatedBlocks* const blocks =
      source == nullptr || order_.is_capturing() ? nullptr : allocators_.dedicated_of(*source);
  if (blocks == nullptr || blocks->allocate(context, bytes, out) != kSuccess) return kOutOfMemory;
  const bool is_limit = count_spilled(device, bytes);
  static constinit log::Once once;
  if (once.first())
    log::line(
        "{} {} for {}: such blocks go to host memory now (CUPOOL_SPILL), where work on them is as slow as "
        "the bus",
        is_limit ? "CUPOOL_LIMIT leaves no room on device" : "there is no room on device", device,
        print_bytes(bytes));
  return kSuccess;
}

// The driver is asked only for a limit that is a share of the device's memory.
bool ShortageLadder::is_above_limit(int device, uint64_t bytes) {
  const Size wanted = config::options().limit;
  size_t free = 0;
  size_t total = 0;
  if (wanted.percent && driver_->memory(&free, &total) != kSuccess) return false;
  const uint64_t limit = wanted.of(total);
  const uint64_t charge = upstream::Upstream::charge(bytes);
  return charge > limit || upstream::Limit::booked(device) > limit - charge;
}

// Fails fast if releasing cannot cover the request, as the driver does: a release would wait for work.
bool ShortageLadder::may_have(int device, uint64_t bytes) {
  if (bytes == 0 || device == kEveryDevice) return true;
  if (bytes > kMiB) bytes = round_up(bytes, driver::kMappingStep);
  uint64_t most = 0;
  allocators_.for_each([&](Allocator& one) { most += one.most_releasable(device, bytes); });
  return most >= bytes || (most != 0 && device_memory_->might_give(device, bytes - most));
}

bool ShortageLadder::release_for_call(int device, Effort effort, driver::Context context, uint64_t bytes) {
  if (release_here(device, context, bytes, effort)) {
    catch_up_on_returns();
    return true;
  }
  if (effort != Effort::kAll) return false;
  if (!ask_others(device, bytes)) return catch_up_on_returns();
  // As in an allocation: what they gave back may be enough only together with ours.
  if (bytes != 0 && device != kEveryDevice && !device_memory_->might_give(device, bytes))
    release_here(device, context, bytes);
  return true;
}

bool ShortageLadder::wait_for_releases(int device) {
  return in_flight_.wait_for_releases(device, allocator::kMostForOtherContexts) || catch_up_on_returns();
}

bool ShortageLadder::release_here(int device, driver::Context context, uint64_t bytes, Effort effort) {
  const bool is_released = may_have(device, bytes) && idle_.release_everything(device, effort, context) != 0;
  return is_released || (effort == Effort::kAll &&
                         in_flight_.wait_for_releases(device, context, allocator::kMostForOtherContexts));
}

// Whether memory has come back since this thread last caught up: maybe between the driver's refusal and the
// look for releases under way. Then the call is made once more.
bool ShortageLadder::catch_up_on_returns() {
  constinit static thread_local uint64_t seen = 0;
  const uint64_t returns = upstream::Limit::returns();
  return std::exchange(seen, returns) != returns;
}

bool ShortageLadder::ask_others(int device, uint64_t bytes) {
  const auto ask = ask_neighbours_.load(std::memory_order_acquire);
  return ask != nullptr && ask(device, bytes);
}

}  // namespace cupool::memory
