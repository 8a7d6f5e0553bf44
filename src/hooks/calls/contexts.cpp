// Creation and destruction of contexts. A context's memory ends with it, so our record of it is dropped
// before the driver acts; what outlives the context is freed only afterwards. order/ learns of every context
// when the program gets it.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "base/after_fork.hpp"
#include "base/clock.hpp"
#include "base/output.hpp"
#include "context/context_ending.hpp"
#include "cuda/live.hpp"
#include "hooks/observe/debug_fill.hpp"
#include "hooks/process/background_thread.hpp"
#include "hooks/process/process_lifetime.hpp"
#include "hooks/sharing/blocks.hpp"
#include "hooks/state/capturing_streams.hpp"
#include "hooks/state/entry_points.hpp"
#include "hooks/state/permission.hpp"
#include "hooks/submit/forward.hpp"
#include "trace/recorder.hpp"

namespace cupool::hooks {

using cuda::live;
using cuda::real;
using driver::Context;
using stats::Event;

namespace {

struct PrimaryLock {
  Lock lock{Rank::kPrimaries};
};

// Serialises retain, release and queries of one device's primary context: a reference of ours must never be
// the last one, and an ended primary context must be dropped before any thread retains it again. Not taken
// for calls from inside the driver, nor in a fork child. It is held across the driver's call, which may wait
// for the program's own work and host functions, so waiting for it is bounded.
class Primaries {
 public:
  explicit Primaries(CUdevice device) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
    if (!may_have_blocks()) return;
    Lock& lock = locks_[static_cast<size_t>(std::clamp(device, 0, stats::kMostDevices - 1))].lock;
    const uint64_t begin = now_ns();
    bool is_held = lock.try_lock();
    while (!is_held && now_ns() - begin < kLongestWaitNs) {
      usleep(50);
      is_held = lock.try_lock();
    }
    if (is_held) held_ = &lock;
  }
  ~Primaries() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
    if (held_ != nullptr) held_->unlock();
  }
  Primaries(const Primaries&) = delete;
  Primaries& operator=(const Primaries&) = delete;

  static void forget_after_fork() {
    for (PrimaryLock& one : locks_) one.lock.reset_after_fork();
  }

 private:
  static constexpr uint64_t kLongestWaitNs = 2'000'000'000;
  static inline constinit std::array<PrimaryLock, stats::kMostDevices> locks_{};

  CancelShield shield_;
  Lock* held_ = nullptr;
};
CUPOOL_AFTER_FORK(primaries_after_fork, Primaries::forget_after_fork);

Context ours(CUcontext context) { return reinterpret_cast<Context>(context); }

// The native pool creates its streams before the program can destroy one of its own: see
// NativePool::prepare().
void prepare_native() {
  if (is_serving() && memory.serves_native()) memory.native()->prepare(current_context());
}

// For calls that store a context in `*context` on success.
template <typename Call>
CUresult gets(CUcontext* context, Call&& call) {
  const CUresult result = call();
  forget_current_context();
  if (result == CUDA_SUCCESS && !Reentry::inside()) {
    context_made();
    if (trace::is_on()) note_device_memory();
  }
  if (result == CUDA_SUCCESS && context != nullptr && is_serving()) {
    live.add(*context);
    memory.order().join(ours(*context));
  }
  prepare_native();
  return result;
}

// For calls that change this thread's current context.
template <typename Call>
CUresult switches(Call&& call) {
  const CUresult result = call();
  forget_current_context();
  prepare_native();
  return result;
}

// The driver call that ends a context. Its error is one of that context, so no other steps aside for it, and
// neither does the next context with this handle.
template <typename... Params, typename... Args>
CUresult forward_end(const cuda::Entry<CUresult (*)(Params...)>& entry, Args... args) {
  const CUresult result = forward(entry, args...);
  const bool is_counted = result == CUDA_SUCCESS || is_sticky(result);
  if (is_counted && !Reentry::inside()) stats::count(Event::contexts_ended);
  return result;
}

// When this thread's call that ends a context began; 0 where nobody listens.
constinit thread_local uint64_t ending_since = 0;

// Called before the driver call that ends the context; returns what end_with() needs afterwards.
// Where the pool does not serve, what other processes share still ends with the context.
uint64_t drop(CUcontext context) {
  ending_since = begin_observed(SlowReason::kMemoryObserved);
  if (!may_have_blocks() || context == nullptr) return 0;
  uint64_t ending = 0;
  if (is_serving()) {
    captures_ended_with(ours(context));
    observe::forget_fill_stream(ours(context));
    ending = memory.begin_end(ours(context));
  }
  imports.forget(context);
  return ending;
}

// `gone` false: the driver refused. Threads that cached the context ask the driver again first.
void end_with(CUcontext context, uint64_t ending, bool gone) {
  forget_current_contexts();
  if (gone && context != nullptr && ending_since != 0) [[unlikely]]
    observer.context_ended({ours(context), ending_since});
  if (!may_have_blocks() || context == nullptr) return;
  pool::Pools::Lost lost;
  if (is_serving()) lost = memory.closed(ours(context), ending, gone);
  if (gone) imports.ended(context);
  for (const auto& [owner, device] : lost) imports.apply_access(reinterpret_cast<CUcontext>(owner), device);
}

// How often each context was attached to: that many detaches do not end it.
class Attached {
 public:
  void add(CUcontext context) {
    Guard hold(lock_);
    all_.value.push_back(context);
  }
  bool take(CUcontext context) {
    Guard hold(lock_);
    const auto found = std::find(all_.value.begin(), all_.value.end(), context);
    if (found == all_.value.end()) return false;
    all_.value.erase(found);
    return true;
  }
  void forget(CUcontext context) {
    Guard hold(lock_);
    std::erase(all_.value, context);
  }
  void forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
    lock_.reset_after_fork();
    all_.value.clear();
  }

 private:
  Lock lock_{Rank::kAttached};
  NoDestroy<std::vector<CUcontext>> all_ CUPOOL_GUARDED_BY(lock_);
};
constinit Attached attached;
CUPOOL_AFTER_FORK(attached_after_fork, [] { attached.forget_after_fork(); });

// The primary context that each device was last seen to have.
class FoundPrimaries {
 public:
  void note(CUdevice device, CUcontext context) {
    if (is_known(device)) last_[static_cast<size_t>(device)].store(context, std::memory_order_relaxed);
  }
  CUcontext last(CUdevice device) const {
    return is_known(device) ? last_[static_cast<size_t>(device)].load(std::memory_order_relaxed) : nullptr;
  }

 private:
  static bool is_known(CUdevice device) { return device >= 0 && device < stats::kMostDevices; }

  std::array<std::atomic<CUcontext>, stats::kMostDevices> last_{};
};
constinit FoundPrimaries found_primaries;

bool primary_is_active(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

// The handle of a device's primary context, if it is active; found by a retain and release. A context that
// has failed may answer the retain with its error: it is the one that was found last.
CUcontext primary(CUdevice device) {
  const Reentry guard;
  CUcontext context = nullptr;
  if (!primary_is_active(device)) return nullptr;
  const CUresult result = real.cuDevicePrimaryCtxRetain(&context, device);
  if (result != CUDA_SUCCESS) return is_sticky(result) ? found_primaries.last(device) : nullptr;
  found_primaries.note(device, context);
  real.cuDevicePrimaryCtxRelease_v2(device);
  return context;
}

// Releasing the last reference ends the context; only the driver knows which one is the last.
template <typename Call>
CUresult releases(CUdevice device, Call&& call) {
  if (!may_have_blocks()) return call();
  const Primaries one_at_a_time(device);
  CUcontext const context = primary(device);
  // Read now: after the release the driver may have dropped its pool.
  if (native::NativePool* const native = memory.native()) native->usage(device);
  const BackgroundThreadPause pause;
  // Until our record is dropped, the driver may already reuse the context's addresses.
  const context::ContextEnding ending(ours(context));
  const auto taken = live.take(context);
  const CUresult result = call();
  if (context != nullptr && !primary_is_active(device)) {
    end_with(context, drop(context), true);
  } else if (context != nullptr) {
    live.put_back(taken);
  }
  forget_current_contexts();
  return result;
}

bool is_primary(CUcontext context, CUdevice device) {
  const Primaries one_at_a_time(device);
  return primary(device) == context;
}

template <typename Call>
CUresult destroys(CUcontext context, Call&& call) {
  // A refusal that is known beforehand leaves everything as it is.
  if (is_serving() && !thread_may_call()) return call();
  // The driver may refuse to destroy a primary context, and our state must survive that.
  if (int device = 0; is_serving() && context != nullptr && memory.device_of(ours(context), &device) &&
                      is_primary(context, device))
    return releases(device, call);
  const auto taken = live.take(context);
  const uint64_t ending = drop(context);
  const CUresult result = call();
  // A sticky error is one of earlier work: the context has ended nevertheless. Any other error is a refusal:
  // the handle is invalid, has been destroyed before or names a primary context, or no call is allowed now.
  const bool gone = result == CUDA_SUCCESS || is_sticky(result);
  end_with(context, ending, gone);
  if (!gone && context != nullptr) live.put_back(taken);
  if (gone && is_serving()) attached.forget(context);
  return result;
}

template <typename Call>
CUresult resets(CUdevice device, Call&& call) {
  if (is_serving() && !thread_may_call()) return call();
  const Primaries one_at_a_time(device);
  CUcontext const context = may_have_blocks() ? primary(device) : nullptr;
  for (CUcontext part : green_contexts.remove_all(device)) {
    live.take(part);
    memory.close(ours(part));
  }
  const auto taken = live.take(context);
  const uint64_t ending = drop(context);
  const CUresult result = call();
  // The error may belong to earlier asynchronous work, so it does not prove that the reset failed.
  const bool gone = result == CUDA_SUCCESS || !primary_is_active(device);
  end_with(context, ending, gone);
  if (!gone && context != nullptr) live.put_back(taken);
  return result;
}

// Each end is told as one call: our books and the driver's drop the memory at two moments of it, and between
// them they differ.
template <typename Entry>
CUresult destroy_by(const Entry& entry, CUcontext context) {
  return observe_call(entry.call(),
                      [&] { return destroys(context, [&] { return forward_end(entry, context); }); });
}
template <typename Entry>
CUresult release_by(const Entry& entry, CUdevice device) {
  return observe_call(entry.call(),
                      [&] { return releases(device, [&] { return forward_end(entry, device); }); });
}
template <typename Entry>
CUresult reset_by(const Entry& entry, CUdevice device) {
  return observe_call(entry.call(),
                      [&] { return resets(device, [&] { return forward_end(entry, device); }); });
}

}  // namespace

CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  return gets(context, [&] { return forward(real.cuCtxCreate, context, flags, device); });
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return gets(context, [&] { return forward(real.cuCtxCreate_v2, context, flags, device); });
}

CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* params, int count, unsigned flags,
                        CUdevice device) {
  return gets(context, [&] { return forward(real.cuCtxCreate_v3, context, params, count, flags, device); });
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* params, unsigned flags, CUdevice device) {
  return gets(context, [&] { return forward(real.cuCtxCreate_v4, context, params, flags, device); });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const Primaries one_at_a_time(device);
  const CUresult result =
      gets(context, [&] { return forward(real.cuDevicePrimaryCtxRetain, context, device); });
  if (result == CUDA_SUCCESS && context != nullptr) found_primaries.note(device, *context);
  return result;
}

CUresult cuCtxAttach(CUcontext* context, unsigned flags) {
  const CUresult result = gets(context, [&] { return forward(real.cuCtxAttach, context, flags); });
  if (result == CUDA_SUCCESS && context != nullptr && is_serving()) attached.add(*context);
  return result;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return switches([&] { return forward(real.cuCtxSetCurrent, context); });
}

CUresult cuCtxPushCurrent(CUcontext context) {
  return switches([&] { return forward(real.cuCtxPushCurrent, context); });
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return switches([&] { return forward(real.cuCtxPushCurrent_v2, context); });
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  return switches([&] { return forward(real.cuCtxPopCurrent, context); });
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return switches([&] { return forward(real.cuCtxPopCurrent_v2, context); });
}

CUresult cuCtxDestroy(CUcontext context) { return destroy_by(real.cuCtxDestroy, context); }

CUresult cuCtxDestroy_v2(CUcontext context) { return destroy_by(real.cuCtxDestroy_v2, context); }

CUresult cuCtxDetach(CUcontext context) {
  if (!is_serving() || !attached.take(context)) return destroy_by(real.cuCtxDetach, context);
  const CUresult result = switches([&] { return forward(real.cuCtxDetach, context); });
  if (result != CUDA_SUCCESS) attached.add(context);
  return result;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) { return reset_by(real.cuDevicePrimaryCtxReset, device); }

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return reset_by(real.cuDevicePrimaryCtxReset_v2, device);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return release_by(real.cuDevicePrimaryCtxRelease, device);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return release_by(real.cuDevicePrimaryCtxRelease_v2, device);
}

CUresult cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc resources, CUdevice device, unsigned flags) {
  if (is_serving()) memory.order().expect_untracked_work("a green context was created");
  const Primaries one_at_a_time(device);
  const CUresult result = forward(real.cuGreenCtxCreate, context, resources, device, flags);
  if (result == CUDA_SUCCESS && context != nullptr && is_serving()) green_contexts.created(*context, device);
  return result;
}

// Also releases a reference to the primary context, perhaps the last one.
CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  const auto call = [&] { return forward_end(real.cuGreenCtxDestroy, green); };
  CUdevice device = 0;
  CUcontext context = nullptr;
  if (!is_serving() || !green_contexts.remove(green, &device, &context)) return call();
  live.take(reinterpret_cast<CUcontext>(green));
  if (context != nullptr) {
    live.take(context);
    memory.close(ours(context));
  }
  return releases(device, call);
}

CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  const CUresult result = gets(context, [&] { return forward(real.cuCtxFromGreenCtx, context, green); });
  CUdevice device = 0;
  if (result == CUDA_SUCCESS && context != nullptr && green_contexts.device_of(green, &device)) {
    const Primaries one_at_a_time(device);
    green_contexts.named(green, *context, primary(device));
  }
  return result;
}

}  // namespace cupool::hooks
