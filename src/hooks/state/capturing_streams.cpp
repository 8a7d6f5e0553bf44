// See capturing_streams.hpp.
#include "hooks/state/capturing_streams.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/after_fork.hpp"
#include "hooks/state/serving.hpp"

namespace cupool::hooks {

namespace {

struct Capture {
  order::Lane lane;
  driver::Context context;
};

// A thread's default stream is another one in each context, under one lane.
class SameStream {
 public:
  explicit SameStream(CUstream stream)
      : lane_(lane_of(stream)), context_(stream == CU_STREAM_PER_THREAD ? current_context() : nullptr) {}
  bool operator()(const Capture& capture) const {
    return capture.lane == lane_ && (context_ == nullptr || capture.context == context_);
  }

 private:
  const order::Lane lane_;
  const driver::Context context_;
};

constinit Lock lock{Rank::kCapturingStreams};
constinit NoDestroy<std::vector<Capture>> list CUPOOL_GUARDED_BY(lock);

// Called without the lock: it makes contexts wait, and that may block.
void order_what_is_owed() {
  memory.order().for_each([](order::Timeline& timeline) { timeline.order_owed(); });
}

template <typename Ended>
void remove(Ended&& ended) {
  {
    Guard hold(lock);
    const size_t gone = std::erase_if(list.value, ended);
    for (size_t i = 0; i < gone; ++i) memory.order().gate().end_capture();
  }
  order_what_is_owed();
}

}  // namespace

// Called without the lock: the gate may make this thread wait for a call of ours.
void capture_begins(CUstream stream) {
  const driver::Context context = owner_of(stream);
  {
    Guard hold(lock);
    list.value.push_back({lane_of(stream), context});
  }
  memory.order().gate().begin_capture(context);
}

void capture_was_refused(CUstream stream) {
  const SameStream is_same(stream);
  {
    Guard hold(lock);
    const auto found = std::find_if(list.value.rbegin(), list.value.rend(), is_same);
    if (found == list.value.rend()) return;
    list.value.erase(std::next(found).base());
    memory.order().gate().end_capture();
  }
  order_what_is_owed();
}

void capture_ended(CUstream stream) { remove(SameStream(stream)); }

void captures_ended_with(driver::Context context) {
  remove([&](const Capture& capture) { return capture.context == context; });
}

namespace {
void forget() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  lock.reset_after_fork();
  list.value.clear();
}
CUPOOL_AFTER_FORK(after_fork, forget);
}  // namespace

}  // namespace cupool::hooks
