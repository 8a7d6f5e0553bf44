// See debug_fill.hpp.
#include "hooks/observe/debug_fill.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/after_fork.hpp"
#include "base/log.hpp"
#include "base/own_call.hpp"
#include "config/options.hpp"
#include "hooks/observe/observer.hpp"
#include "hooks/state/scoped_context.hpp"
#include "hooks/state/serving.hpp"
#include "order/submission_gate.hpp"

namespace cupool::hooks::observe {

extern const Listener debug_fill_listener;

namespace {

constexpr int kNone = -1;
constinit std::atomic<int> new_value{kNone};
constinit std::atomic<int> old_value{kNone};

// One "alloc:0xA5" or "free:90" of CUPOOL_FILL.
bool take_fill(std::string_view part) {
  const size_t colon = part.find(':');
  const std::string_view when = part.substr(0, colon);
  if (colon == std::string_view::npos || (when != "alloc" && when != "free")) return false;
  char text[16] = {};
  part.substr(colon + 1).copy(text, sizeof text - 1);
  char* end = nullptr;
  const unsigned long value = strtoul(text, &end, 0);
  if (end == text || *end != '\0' || value > 0xFF) return false;
  (when == "alloc" ? new_value : old_value).store(static_cast<int>(value), std::memory_order_relaxed);
  return true;
}

void take_fills(const char* option) {
  for (std::string_view rest(option); !rest.empty();) {
    const size_t comma = rest.find(',');
    if (!take_fill(rest.substr(0, comma))) {
      log::line("CUPOOL_FILL={} is not like alloc:0xA5,free:0x5A; ignoring the part that is not",
                first(option, 64));
    }
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
}

// One stream of ours per context, on which blocks are filled: no work of the program is ever queued on it, so
// waiting for it waits for the fill alone. Streams of contexts that have ended are never used again.
class FillStreams {
 public:
  // pre: `context` is current. Made without the lock: the driver makes no stream while a launch stands in a
  // full queue. Of two streams made at once one stays unused.
  CUstream get(driver::Context context) {
    if (CUstream known = find(context, nullptr)) return known;
    const OwnCall guard;
    CUstream stream = nullptr;
    if (cuda::real.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return nullptr;
    return find(context, stream);
  }
  void forget(driver::Context context) {
    Guard hold(lock_);
    std::erase_if(all_.value, [&](const Known& known) { return known.context == context; });
  }
  void forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
    lock_.reset_after_fork();
    all_.value.clear();
  }

 private:
  struct Known {
    driver::Context context;
    CUstream stream;
  };
  // The known stream, or `made` if there is none.
  CUstream find(driver::Context context, CUstream made) {
    Guard hold(lock_);
    for (const Known& known : all_.value) {
      if (known.context == context) return known.stream;
    }
    if (made != nullptr) all_.value.push_back({context, made});
    return made;
  }

  Lock lock_{Rank::kFillStreams};
  NoDestroy<std::vector<Known>> all_ CUPOOL_GUARDED_BY(lock_);
};
constinit FillStreams fill_streams;

// The fill as work on `stream`, noted like all work; `order`: of the stream's context, null if that has no
// memory of ours. False: it was not submitted.
bool fill_on(order::Timeline* order, CUstream stream, CUdeviceptr block, size_t bytes, int value) {
  if (stream == nullptr) return false;
  const order::Lane lane = lane_of(stream);
  if (order != nullptr && !order->before_submit(lane, reinterpret_cast<driver::Stream>(stream))) return false;
  const order::SubmissionGate::Pass pass;
  const OwnCall guard;
  cuda::real.cuMemsetD8Async(block, static_cast<unsigned char>(value), bytes, stream);
  if (order != nullptr) order->after_submit(lane);
  return true;
}

// Orders all later work of the context after what is queued on `stream` now.
void order_context_after(driver::Context owner, CUstream stream) {
  CUevent event = nullptr;
  const bool ordered = cuda::real.cuCtxWaitEvent.present() &&
                       cuda::real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
                       cuda::real.cuEventRecord(event, stream) == CUDA_SUCCESS &&
                       cuda::real.cuCtxWaitEvent(reinterpret_cast<CUcontext>(owner), event) == CUDA_SUCCESS;
  if (!ordered) cuda::real.cuStreamSynchronize(stream);
  if (event != nullptr) cuda::real.cuEventDestroy_v2(event);
}

bool is_wanted() {
  const config::Options& options = config::options();
  if (options.zero) new_value.store(0, std::memory_order_relaxed);
  take_fills(options.fill);
  return new_value.load(std::memory_order_relaxed) != kNone ||
         old_value.load(std::memory_order_relaxed) != kNone;
}

void allocated(const Allocated& what) {
  const int value = new_value.load(std::memory_order_relaxed);
  const driver::Context owner = what.context;
  // The gate keeps captures from beginning between the fill and the wait that orders it: a capture would
  // forbid the wait.
  if (what.server != Server::kPool || value == kNone || !memory.order().gate().enter(owner)) return;
  const CUstream stream = fill_streams.get(owner);
  if (fill_on(memory.order().find(owner), stream, what.address, what.bytes, value)) {
    const OwnCall guard;
    // The host may touch managed memory before any work does.
    if (what.call == cuda::Call::cuMemAllocManaged) {
      cuda::real.cuStreamSynchronize(stream);
    } else {
      order_context_after(owner, stream);
    }
  }
  memory.order().gate().leave(owner);
}

// A free waits for all work, as the driver's does, so the fill cannot come too early. The block's next life
// is ordered after the fill as after any other work. A free in stream order does not wait: there the fill is
// work on that stream.
void freed(const Freed& what) {
  const int value = old_value.load(std::memory_order_relaxed);
  memory::BlockInfo held;
  // A block that the driver itself has freed is not found any more.
  if (value == kNone || what.server != Server::kPool || !memory.find(what.address, &held) ||
      held.start != what.address || held.free_pending)
    return;
  if (what.stream != 0) {
    const auto stream = reinterpret_cast<CUstream>(what.stream);
    fill_on(timeline_of(stream), stream, what.address, held.bytes, value);
    return;
  }
  order::Timeline* const order = memory.order().find(held.context);
  // (To wait while a stream captures would end the capture.)
  if (memory.order().is_capturing() || order == nullptr || !order->wait_for_all()) return;
  const ScopedContext scope(reinterpret_cast<CUcontext>(held.context));
  fill_on(order, fill_streams.get(held.context), what.address, held.bytes, value);
}

CUPOOL_AFTER_FORK(fill_streams_after_fork, [] { fill_streams.forget_after_fork(); });

}  // namespace

constinit const Listener debug_fill_listener{.is_wanted = is_wanted, .allocated = allocated, .freed = freed};

void forget_fill_stream(driver::Context context) { fill_streams.forget(context); }

}  // namespace cupool::hooks::observe
