// See debug_fill.hpp.
#include "hooks/observe/debug_fill.hpp"

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/after_fork.hpp"
#include "base/call_stack.hpp"
#include "base/log.hpp"
#include "base/own_call.hpp"
#include "config/options.hpp"
#include "hooks/observe/history.hpp"
#include "hooks/state/scoped_context.hpp"
#include "hooks/submit/submit.hpp"

namespace cupool::hooks {

namespace {

constexpr int kNone = -1;
constinit std::atomic<int> new_value{kNone};
constinit std::atomic<int> old_value{kNone};

constinit std::atomic<History*> known_blocks{nullptr};

// Created with the first block and never destroyed.
History& history() {
  History* found = known_blocks.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  auto* const made = new History;
  if (known_blocks.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *found;
}

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

// `then(stream)` runs after the write is submitted. pre: the block's context is current.
template <typename Then>
void write_over(driver::Context owner, CUdeviceptr block, size_t bytes, int value, Then&& then) {
  order::Timeline* const order = memory.timeline_of(owner);
  CUstream const stream = fill_streams.get(owner);
  if (order == nullptr || stream == nullptr) return;
  const order::Lane lane = lane_of(stream);
  if (!order->before_submit(lane, reinterpret_cast<driver::Stream>(stream))) return;
  const OwnCall guard;
  cuda::real.cuMemsetD8Async(block, static_cast<unsigned char>(value), bytes, stream);
  order->after_submit(lane);
  then(stream);
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

}  // namespace

void set_up_debug_fill() {
  const config::Options& options = config::options();
  if (options.zero) new_value.store(0, std::memory_order_relaxed);
  take_fills(options.fill);
  const bool any = options.check || new_value.load(std::memory_order_relaxed) != kNone ||
                   old_value.load(std::memory_order_relaxed) != kNone;
  set_slow(SlowReason::kBlocksWatched, any);
}

void block_given(CUdeviceptr block, size_t bytes, First first) {
  if (config::options().check) history().note_allocation(block, bytes);
  const int value = new_value.load(std::memory_order_relaxed);
  // The gate keeps captures from beginning between the fill and the wait that orders it: a capture would
  // forbid the wait.
  const driver::Context owner = current_context();
  if (value == kNone || !memory.order().gate().enter(owner)) return;
  write_over(owner, block, bytes, value, [&](CUstream stream) {
    if (first == First::kHost) {
      cuda::real.cuStreamSynchronize(stream);
    } else {
      order_context_after(owner, stream);
    }
  });
  memory.order().gate().leave(owner);
}

// The free waits for all work, as the driver's does, so the fill cannot come too early. The block's next life
// is ordered after the fill as after any other work.
void block_returns(CUdeviceptr block) {
  if (config::options().check) history().note_free(block);
  const int value = old_value.load(std::memory_order_relaxed);
  memory::BlockInfo held;
  if (value == kNone || !memory.find(block, &held) || held.start != block || held.leaving) return;
  order::Timeline* const order = memory.timeline_of(held.context);
  if (order == nullptr || !order->wait_for_all()) return;
  const ScopedContext scope(reinterpret_cast<CUcontext>(held.context));
  write_over(held.context, block, held.bytes, value, [](CUstream) {});
}

// A stream-ordered free does not wait: the fill is work on that stream.
void block_returns_on(CUdeviceptr block, CUstream stream) {
  if (config::options().check) history().note_free(block);
  const int value = old_value.load(std::memory_order_relaxed);
  memory::BlockInfo held;
  if (value == kNone || !memory.find(block, &held) || held.start != block || held.leaving) return;
  submit(stream, [&] {
    return cuda::real.cuMemsetD8Async(block, static_cast<unsigned char>(value), held.bytes, stream);
  });
}

void block_has_gone(CUdeviceptr block) {
  if (config::options().check) history().note_free(block);
}

void forget_fill_stream(driver::Context context) { fill_streams.forget(context); }

namespace {
void forget() {
  fill_streams.forget_after_fork();
  known_blocks.store(nullptr, std::memory_order_relaxed);
}
CUPOOL_AFTER_FORK(after_fork, forget);
}  // namespace

void note_bad_free(CUdeviceptr pointer) {
  if (!config::options().check || Reentry::inside()) return;
  const Reentry guard;
  History::Life life;
  const bool known = history().find(pointer, &life);
  const auto address = static_cast<unsigned long long>(pointer);
  const auto inside = static_cast<unsigned long long>(pointer - life.start);
  const auto bytes = static_cast<unsigned long long>(life.bytes);
  const auto start = static_cast<unsigned long long>(life.start);
  if (!known) {
    log::line("free of {:#x}, which was never allocated, or not through this library; freed here:", address);
  } else if (inside != 0) {
    log::line(
        "free of {:#x}, an interior pointer: it is {} bytes inside a block of {} bytes at {:#x}{}; freed "
        "here:",
        address, inside, bytes, start, life.freed ? " that was freed before" : "");
  } else {
    log::line("double free of {:#x}, a block of {} bytes; freed again here:", address, bytes);
  }
  void* frames[kDeepestStack];
  print_call_stack(frames, call_stack(frames, kDeepestStack));
  if (known && life.freed) {
    log::line("  freed before here:");
    print_call_stack(life.returned.frames.data(), life.returned.count);
  }
  if (known) {
    log::line("  allocated here:");
    print_call_stack(life.allocated.frames.data(), life.allocated.count);
  }
}

}  // namespace cupool::hooks
