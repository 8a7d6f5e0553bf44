// Releasing free memory to the driver. A segment of the driver's goes back whole, by a real cuMemFree, which
// waits for all work of the context: so in a free, or while nothing is pending. After the driver has refused
// memory, a segment whose own work is done goes without a wait (Ranges::detach_done). Mapped chunks go back
// wherever they lie and at any time, for unmapping waits for nothing and stops nothing: but only once all
// work on them is done (Ranges::part). No pool lock is held across either.
#include <algorithm>

#include "base/clock.hpp"
#include "order/idle_moment.hpp"
#include "pool/page_map.hpp"
#include "pool/pool.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

// Meanwhile the context does not end. A capture may begin: a release breaks none (driver/driver.hpp).
class Pool::Release {
 public:
  explicit Release(Pool& pool)
      : gate_(pool.order().gate()),
        call_(pool.in_flight_, pool.context(), InFlight::Kind::kRelease, pool.device()),
        may_capture_unseen_(pool.upstream_.driver().may_be_capturing()) {}
  Release(const Release&) = delete;
  Release& operator=(const Release&) = delete;
  // False: the context has ended or is about to, or a stream captures.
  bool may_begin() const { return !may_capture_unseen_ && !gate_.is_capturing() && call_.is_open(); }

 private:
  const order::CaptureGate& gate_;
  const InFlight::Call call_;
  const bool may_capture_unseen_;
};

bool Pool::give_back(Segment* segment) {
  const bool is_taken = segment->mapped ? space_.unmap(segment->start, segment->bytes)
                                        : upstream_.release(order(), segment->start, segment->bytes);
  if (!is_taken) return false;
  released_segments_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// A detached segment that the driver does not take, or that is not needed elsewhere: serves on, with the
// stamp it had. Without host memory for its records it is lost until the context ends.
void Pool::put_back(Segment* segment) {
  const bool entered = page_map.enter(segment->start, segment->bytes);
  const auto from = segment->mapped ? Ranges::From::kMapped : Ranges::From::kDriver;
  if (!entered || ranges_.add(segment->start, segment->bytes, 0, from, segment->lowest()->stamp) == nullptr) {
    if (entered) page_map.remove(segment->start, segment->bytes);
    lost_.fetch_add(segment->bytes, std::memory_order_relaxed);
  }
  ranges_.forget(segment);
}

// Releases a detached segment; returns its bytes, 0 if the driver refused.
uint64_t Pool::hand_back(Segment* segment) {
  const uint64_t bytes = segment->bytes;
  if (!give_back(segment)) {
    put_back(segment);
    return 0;
  }
  ranges_.forget(segment);
  return bytes;
}

// The same, without a wait, for a segment of the driver's whose work is done.
uint64_t Pool::hand_back_done(Segment* segment) {
  const uint64_t bytes = segment->bytes;
  if (!upstream_.release_done(order(), segment->start, bytes)) {
    put_back(segment);
    return 0;
  }
  released_segments_.fetch_add(1, std::memory_order_relaxed);
  ranges_.forget(segment);
  return bytes;
}

// The places that chunks have left go as soon as their work is done: as long as they are mapped there, too,
// the device does not get them back. Another thread may add some while this one unmaps: what is read here
// says nothing of those. So the open epoch is read first: work that begins later belongs to a newer one.
void Pool::unmap_left() {
  if (!space_.has_left()) return;
  const Release release(*this);
  const Epoch newest = order().open();
  const Epoch done = std::min(newest, order().done());
  if (release.may_begin()) space_.unmap_left(order::kLeft ? done : order::kAnyStamp);
}

uint64_t Pool::release_chunks(Ranges::Leaving which) {
  if (!ranges_.has_mapped_segments()) return 0;
  unmap_left();
  uint64_t released = 0;
  const Release release(*this);
  while (release.may_begin() && released < which.enough) {
    Ranges::Leaving more = which;
    more.enough -= released;
    Segment* const segment = ranges_.part(more, space_, order());
    const uint64_t bytes = segment == nullptr ? 0 : hand_back(segment);
    if (bytes == 0) break;
    released += bytes;
  }
  return released;
}

// As much may be taken again for streams that take turns, and no more: what they were given may still lie
// idle, for a mapped chunk goes back whatever else is pending. What does not is in use, so it was needed.
void Pool::note_released(uint64_t bytes) {
  if (bytes == 0) return;
  const uint64_t idle = ranges_.free_bytes();
  uint64_t spread = spread_.load(std::memory_order_relaxed);
  while (!spread_.compare_exchange_weak(spread, std::min(spread - std::min(spread, bytes), idle),
                                        std::memory_order_relaxed)) {
  }
}

// Idle memory goes back after a pause. While the pool grows back, streams that take turns are given more
// before the program has again what it needs at its peak. What of that does not lie idle when nothing fits
// would have been taken by then anyway: as much as they had before the pause may be found so, and no more.
void Pool::note_pause(uint64_t needed, uint64_t spread) {
  const auto raise = [](std::atomic<uint64_t>& to, uint64_t bytes) {
    if (bytes > to.load(std::memory_order_relaxed)) to.store(bytes, std::memory_order_relaxed);
  };
  raise(needed_once_, needed);
  raise(spread_once_, spread);
}

uint64_t Pool::found_needed() {
  const uint64_t spread =
      std::min(spread_.load(std::memory_order_relaxed), spread_once_.load(std::memory_order_relaxed));
  if (spread == 0 || ranges_.reserved() >= needed_once_.load(std::memory_order_relaxed)) return 0;
  return spread - std::min(spread, releasable_bytes());
}

void Pool::note_needed(uint64_t bytes) {
  for (std::atomic<uint64_t>* const from : {&spread_, &spread_once_}) {
    uint64_t spread = from->load(std::memory_order_relaxed);
    while (
        !from->compare_exchange_weak(spread, spread - std::min(spread, bytes), std::memory_order_relaxed)) {
    }
  }
}

uint64_t Pool::release_free_segments(uint64_t keep) {
  uint64_t released = 0;
  const uint64_t free = ranges_.free_bytes();
  if (free > keep) released = release_chunks({.enough = free - keep});
  if (released != 0) stats_.count(stats::DeviceCounter::trims);
  if (!ranges_.has_driver_segments()) {
    note_released(released);
    return released;
  }
  const Release release(*this);
  while (release.may_begin() && ranges_.free_bytes() > keep) {
    Segment* segment = ranges_.detach();
    if (segment == nullptr) break;
    const uint64_t bytes = hand_back(segment);
    if (bytes == 0) break;
    if (released == 0) stats_.count(stats::DeviceCounter::trims);
    released += bytes;
  }
  note_released(released);
  return released;
}

uint64_t Pool::release_done() {
  give_reached();
  uint64_t released = release_tainted(false) + release_chunks({});
  const bool may_go = ranges_.has_driver_segments() && releasable_bytes() != 0;
  const Release release(*this);
  while (may_go && release.may_begin() && order().spare_stream() != nullptr) {
    Segment* const segment = ranges_.detach_done(order());
    const uint64_t bytes = segment == nullptr ? 0 : hand_back_done(segment);
    if (bytes == 0) break;
    released += bytes;
  }
  if (released != 0) stats_.count(stats::DeviceCounter::trims);
  note_released(released);
  return released;
}

// The driver's free of a segment waits for what is pending; for mapped memory that is done here, if there is
// any to gain.
uint64_t Pool::release_everything(allocator::Effort effort) {
  using allocator::Effort;
  if (context() == nullptr || order().is_capturing()) return 0;
  empty_thread_caches();
  order().advance();
  // A free that gives nothing back may wait for this very call. Where only the driver's free can give
  // segments back, it waits by itself.
  const bool can_go =
      ranges_.has_mapped_segments() || (releasable_bytes() != 0 && order().spare_stream() != nullptr);
  const auto may_gain = [&] {
    return can_go && (space_.has_left() || ranges_.has_unfinished(order().done()));
  };
  if (effort != Effort::kDone && may_gain()) order().wait_for_frees();
  uint64_t released = release_done();
  if (effort != Effort::kAll) return released;
  if (ranges_.has_mapped_segments() && may_gain()) order().wait_for_all();
  released += release_tainted();
  return released + release_free_segments(0);
}

uint64_t Pool::trim(uint64_t keep) {
  if (context() == nullptr || order().is_capturing()) return 0;
  empty_thread_caches();
  if (ranges_.has_mapped_segments()) order().advance();
  return release_free_segments(keep);
}

// Mapped chunks at any time, for nobody waits. Else one segment at a time, while nothing is pending:
// submissions wait meanwhile.
uint64_t Pool::release_idle(const allocator::Idle& which) {
  const bool is_meant = which.device == allocator::kEveryDevice || which.device == device_;
  if (!is_meant || context() == nullptr || order().is_capturing()) return 0;
  const uint64_t now = now_ns() / 1'000'000;
  const uint64_t needed_now = needed();
  const uint64_t spread_now = spread_.load(std::memory_order_relaxed);
  uint64_t released = release_idle_chunks(which, now);
  const bool may_go =
      ranges_.has_driver_segments() && order().is_idle() && (!which.only_quiet || order().was_quiet());
  if (may_go) empty_thread_caches();
  for (uint64_t bytes = may_go ? 1 : 0; bytes != 0 && released < which.enough; released += bytes) {
    bytes = 0;
    const order::IdleMoment moment(order(), which.on_own_thread);
    if (!moment.has_come()) break;
    const Release release(*this);
    if (!release.may_begin()) break;
    Segment* const segment = ranges_.detach_idle(now, which.for_ms, order());
    if (segment == nullptr) break;
    bytes = hand_back(segment);
    if (bytes != 0) stats_.count(stats::DeviceCounter::decays);
  }
  if (released != 0) note_pause(needed_now, spread_now);
  note_released(released);
  return released;
}

// Where work may be submitted unseen, a capture may begin unseen, too: then only at the program's own calls.
// Thread caches of a program at work are left alone.
uint64_t Pool::release_idle_chunks(const allocator::Idle& which, uint64_t now_ms) {
  if (!ranges_.has_mapped_segments()) return 0;
  const bool is_quiet = which.only_quiet ? order().was_quiet() : order().is_idle();
  if (!is_quiet && which.on_own_thread && order().reuse() != order::Reuse::kLean) return 0;
  if (is_quiet) empty_thread_caches();
  const uint64_t released =
      release_chunks({.enough = which.enough, .now_ms = now_ms, .idle_ms = which.for_ms});
  if (released != 0) stats_.count(stats::DeviceCounter::decays);
  return released;
}

void Pool::trim_to_limit() {
  const uint64_t most = max_cached_.load(std::memory_order_relaxed);
  if (ranges_.free_bytes() <= most || order().is_capturing()) return;
  if (ranges_.has_mapped_segments()) order().advance();
  release_free_segments(most);
}

uint64_t Pool::release_tainted(bool may_wait) {
  if (tainted_segments_.load(std::memory_order_relaxed) == 0 || order().is_capturing()) return 0;
  uint64_t released = 0;
  const Release release(*this);
  if (!release.may_begin()) return 0;
  while (Segment* segment = ranges_.detach_tainted(order(), may_wait)) {
    tainted_segments_.fetch_sub(1, std::memory_order_relaxed);
    // If the driver refuses, the segment leaks: another process or device may still reach it, so it is never
    // reused.
    if (give_back(segment)) {
      released += segment->bytes;
    } else {
      lost_.fetch_add(segment->bytes, std::memory_order_relaxed);
    }
    ranges_.forget(segment);
  }
  return released;
}

}  // namespace cupool::pool
