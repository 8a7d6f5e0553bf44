// See capturing_streams.hpp.
#include "hooks/capturing_streams.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <vector>

#include "base/after_fork.hpp"
#include "hooks/relaxed_capture.hpp"
#include "hooks/serving.hpp"

namespace cupool::hooks {

namespace {

struct Capture {
  order::Lane lane;
  driver::Context context;
};

constinit Lock lock;
constinit NoDestroy<std::vector<Capture>> list CUPOOL_GUARDED_BY(lock);
// Whether a stream that captures may have work from before, how often that has begun, and how many waits that
// may draw in another one are under way.
constinit std::atomic<bool> hides_work{false};
constinit std::atomic<uint64_t> times_hidden{0};
constinit std::atomic<uint32_t> may_spread{0};

// In this order: who asks reads them in the other.
void note_hidden_work() {
  hides_work.store(true, std::memory_order_seq_cst);
  times_hidden.fetch_add(1, std::memory_order_seq_cst);
}

void end_locked(size_t count) CUPOOL_REQUIRES(lock) {
  for (size_t i = 0; i < count; ++i) memory.order().gate().end_capture();
  if (list.value.empty()) hides_work.store(false, std::memory_order_seq_cst);
}

// The driver is asked only if what is noted does not tell. A query of a stream that captures would end the
// capture, and of the legacy one any of a blocking stream.
bool may_have_work(CUstream stream) {
  order::Timeline* const order = timeline_of(stream);
  if (order == nullptr || !order->may_have_work(lane_of(stream))) return false;
  if (stream == CU_STREAM_LEGACY || is_capturing(stream)) return true;
  const RelaxedCapture allowed;
  const Reentry guard;
  return cuda::real.cuStreamQuery(stream) != CUDA_SUCCESS;
}

template <typename Ended>
void remove(Ended&& ended) {
  Guard hold(lock);
  end_locked(std::erase_if(list.value, ended));
}

}  // namespace

void capture_begins(CUstream stream) {
  const driver::Context context = current_context();
  const bool hides = may_have_work(stream);
  Guard hold(lock);
  if (hides) note_hidden_work();
  list.value.push_back({lane_of(stream), context});
  memory.order().gate().begin_capture();
}

void capture_was_refused(CUstream stream) {
  const order::Lane lane = lane_of(stream);
  Guard hold(lock);
  const auto found = std::find_if(list.value.rbegin(), list.value.rend(),
                                  [&](const Capture& capture) { return capture.lane == lane; });
  if (found == list.value.rend()) return;
  list.value.erase(std::next(found).base());
  end_locked(1);
}

void capture_ended(CUstream stream) {
  const order::Lane lane = lane_of(stream);
  remove([&](const Capture& capture) { return capture.lane == lane; });
}

void captures_ended_with(driver::Context context) {
  remove([&](const Capture& capture) { return capture.context == context; });
}

CaptureMaySpread::CaptureMaySpread(CUstream stream)
    : stream_(stream), may_(is_serving() && memory.order().is_capturing()) {
  if (may_) may_spread.fetch_add(1, std::memory_order_seq_cst);
}

CaptureMaySpread::~CaptureMaySpread() {
  if (!may_) return;
  if (!hides_work.load(std::memory_order_seq_cst) && is_capturing(stream_)) {
    const order::Lane lane = lane_of(stream_);
    Guard hold(lock);
    const bool is_known = std::any_of(list.value.begin(), list.value.end(),
                                      [&](const Capture& capture) { return capture.lane == lane; });
    if (!is_known && !list.value.empty()) note_hidden_work();
  }
  may_spread.fetch_sub(1, std::memory_order_seq_cst);
}

bool captures_hide_no_work(uint64_t* since) {
  *since = times_hidden.load(std::memory_order_seq_cst);
  return !hides_work.load(std::memory_order_seq_cst) && may_spread.load(std::memory_order_seq_cst) == 0;
}

bool have_hidden_no_work(uint64_t since) {
  return may_spread.load(std::memory_order_seq_cst) == 0 &&
         times_hidden.load(std::memory_order_seq_cst) == since;
}

namespace {
void forget() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  lock.reset_after_fork();
  list.value.clear();
  hides_work.store(false, std::memory_order_relaxed);
  may_spread.store(0, std::memory_order_relaxed);
}
CUPOOL_AFTER_FORK(after_fork, forget);
}  // namespace

}  // namespace cupool::hooks
