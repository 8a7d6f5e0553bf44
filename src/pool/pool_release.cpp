// Releasing wholly free segments to the driver. Every release is a real cuMemFree, which waits for all work
// of the context, so it happens in a free, while nothing is pending, or after the driver has refused memory.
// No pool lock is held across it.
#include "base/clock.hpp"
#include "order/idle_moment.hpp"
#include "pool/page_map.hpp"
#include "pool/pool.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

// Meanwhile the context does not end, and a capture waits to begin: the driver's free would break it.
class Pool::Release {
 public:
  explicit Release(Pool& pool)
      : gate_(pool.order().gate()),
        call_(pool.in_flight_, pool.context(), InFlight::Kind::kRelease, pool.device()),
        has_gate_(!pool.upstream_.driver().may_be_capturing() && gate_.enter()) {}
  ~Release() {
    if (has_gate_) gate_.leave();
  }
  Release(const Release&) = delete;
  Release& operator=(const Release&) = delete;
  // False: the context has ended or is about to, or a stream captures.
  bool may_begin() const { return has_gate_ && call_.is_open(); }

 private:
  order::CaptureGate& gate_;
  const InFlight::Call call_;
  const bool has_gate_;
};

bool Pool::give_back(Segment* segment) {
  if (!upstream_.release(order(), segment->start, segment->bytes)) return false;
  released_segments_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// Releases a detached segment; returns its bytes, 0 if the driver refused.
uint64_t Pool::hand_back(Segment* segment) {
  const uint64_t bytes = give_back(segment) ? segment->bytes : 0;
  // If the driver refuses the release, put the segment back, with the stamp it had. Without host memory for
  // its records it is lost until the context ends.
  if (bytes == 0) {
    const bool entered = page_map.enter(segment->start, segment->bytes);
    if (!entered || ranges_.add(segment->start, segment->bytes, 0, segment->first->stamp) == nullptr) {
      if (entered) page_map.remove(segment->start, segment->bytes);
      lost_.fetch_add(segment->bytes, std::memory_order_relaxed);
    }
  }
  ranges_.forget(segment);
  return bytes;
}

uint64_t Pool::release_free_segments(uint64_t keep) {
  uint64_t released = 0;
  const Release release(*this);
  while (release.may_begin() && ranges_.free_bytes() > keep) {
    Segment* segment = ranges_.detach();
    if (segment == nullptr) break;
    const uint64_t bytes = hand_back(segment);
    if (bytes == 0) break;
    if (released == 0) stats_.count(stats::DeviceCounter::trims);
    released += bytes;
  }
  if (released != 0) spread_.store(0, std::memory_order_relaxed);
  return released;
}

uint64_t Pool::release_everything() {
  if (context() == nullptr || order().is_capturing()) return 0;
  empty_thread_caches();
  release_tainted();
  return release_free_segments(0);
}

uint64_t Pool::trim(uint64_t keep) {
  if (context() == nullptr || order().is_capturing()) return 0;
  empty_thread_caches();
  return release_free_segments(keep);
}

// One segment at a time: submissions wait meanwhile.
uint64_t Pool::release_idle(const allocator::Idle& which) {
  const bool is_meant = which.device == allocator::kEveryDevice || which.device == device_;
  if (!is_meant || context() == nullptr || order().is_capturing() || !order().is_idle()) return 0;
  if (which.only_quiet && !order().was_quiet()) return 0;
  const uint64_t now = now_ns() / 1'000'000;
  empty_thread_caches();
  uint64_t released = 0;
  for (uint64_t bytes = 1; bytes != 0 && released < which.enough; released += bytes) {
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
  return released;
}

void Pool::trim_to_limit() {
  const uint64_t most = max_cached_.load(std::memory_order_relaxed);
  if (ranges_.free_bytes() > most && !order().is_capturing()) release_free_segments(most);
}

void Pool::release_tainted() {
  if (tainted_segments_.load(std::memory_order_relaxed) == 0 || order().is_capturing()) return;
  const Release release(*this);
  if (!release.may_begin()) return;
  while (Segment* segment = ranges_.detach_tainted()) {
    tainted_segments_.fetch_sub(1, std::memory_order_relaxed);
    // If the driver refuses, the segment leaks: another process or device may still reach it, so it is never
    // reused.
    if (!give_back(segment)) lost_.fetch_add(segment->bytes, std::memory_order_relaxed);
    ranges_.forget(segment);
  }
}

}  // namespace cupool::pool
