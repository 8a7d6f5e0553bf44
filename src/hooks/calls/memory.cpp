// Device memory with an address: allocations served by the pool, and those left to the driver. Each entry
// point checks, calls and counts; it owns nothing and holds no lock across the driver. In doubt the call goes
// to the driver, which gives its own answer: bad arguments, no context, a capture that forbids allocation.
#include <optional>

#include "cuda/relaxed_capture.hpp"
#include "hooks/doors/loads.hpp"
#include "hooks/observe/tell.hpp"
#include "hooks/process/background_thread.hpp"
#include "hooks/state/entry_points.hpp"
#include "hooks/state/green_contexts.hpp"
#include "hooks/state/permission.hpp"
#include "hooks/state/scoped_context.hpp"
#include "hooks/state/serving.hpp"
#include "hooks/submit/forward.hpp"
#include "hooks/submit/room.hpp"
#include "hooks/submit/submit.hpp"
#include "memory/hot_path.hpp"

namespace cupool::hooks {

using cuda::real;
using memory::Freed;
using memory::Kept;
using observe::Server;
using stats::Counter;

namespace {

void count_failure(CUresult result, Counter failed) {
  if (result != CUDA_SUCCESS && !Reentry::inside()) [[unlikely]]
    stats::count(failed);
}

// A stream-ordered call is work on its stream like any other.
template <typename Entry, typename... Args>
CUresult ordered(CUstream stream, Counter counter, const Entry& entry, Args... args) {
  const CUresult result = submit_to(stream, entry, args...);
  if (result == CUDA_SUCCESS && !Reentry::inside()) stats::count(counter);
  return result;
}

template <typename Entry, typename... Args>
CUresult allocate_on(CUstream stream, const Entry& entry, CUdeviceptr* pointer, size_t bytes, Args... args) {
  AllocationReport report(entry.call(), stream, observe::Memory::kStream);
  const CUresult result = ordered(stream, Counter::async_allocations, entry, pointer, bytes, args...);
  return report.answer(Server::kDriver, pointer, bytes, result);
}

// A free while a stream captures. A probe allocation finds out whether this thread may free: the driver
// answers it as it would answer the free, and affects the capture in the same way. The probe's own free waits
// for all work of the context, as the program's free would, including work that a stream was given before its
// capture; so blocks freed before it may be reused at once.
class CaptureProbe {
 public:
  // The probe is made in the block's context, because the driver's free waits for that context, and a thread
  // without a current context may free.
  explicit CaptureProbe(CUdeviceptr pointer) {
    memory::BlockInfo held;
    if (memory.find(pointer, &held)) {
      context_ = held.context;
      scope_.emplace(reinterpret_cast<CUcontext>(context_));
    }
    const Reentry guard;
    answer_ = real.cuMemAlloc_v2(&block_, 1);
  }
  ~CaptureProbe() {
    if (block_ == 0) return;
    const Reentry guard;
    const order::CaptureGate::Relaxed relaxed;
    // (In a green context it waits for that part of the device alone.)
    const bool is_part = green_contexts.any();
    order::Timeline* const order = is_part ? nullptr : memory.order().find(context_);
    const order::Epoch epoch = order == nullptr ? 0 : order->begin_wait(order::Lane::kMany);
    const bool has_waited = real.cuMemFree_v2(block_) == CUDA_SUCCESS;
    if (order != nullptr) order->end_wait(epoch, has_waited);
  }
  CaptureProbe(const CaptureProbe&) = delete;
  CaptureProbe& operator=(const CaptureProbe&) = delete;

  // A full device does not forbid a free.
  CUresult answer() const { return answer_ == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : answer_; }

 private:
  driver::Context context_ = nullptr;
  std::optional<ScopedContext> scope_;
  CUdeviceptr block_ = 0;
  CUresult answer_ = CUDA_SUCCESS;
};

CUresult answer(Freed freed) { return freed == Freed::kDone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

bool is_ours(CUdeviceptr pointer) {
  if (!is_serving()) return false;
  if (memory.native() != nullptr && memory.native()->has_block(pointer)) return true;
  memory::BlockInfo held;
  if (memory.may_be_gone(pointer)) return memory.find(pointer, &held) && held.start == pointer;
  return memory.owns(pointer);
}

// The error that ended the current context: the driver answers every free with it, whatever it frees, and the
// block lives on.
CUresult error_of_context() {
  if (!has_failures()) [[likely]]
    return CUDA_SUCCESS;
  if (!memory.in_flight().is_off(current_context())) return CUDA_SUCCESS;
  const CUresult error = ask_context();
  if (!is_sticky(error)) return CUDA_SUCCESS;
  stats::count(Counter::failed_frees);
  return error;
}

// Whether this thread may free in stream order while another stream captures. The driver refuses a query
// where it refuses such a free, and ends the capture with it; unlike an allocation, a query waits for
// nothing.
CUresult ask_to_free_on(CUstream stream) {
  const driver::Context owner = memory.order().is_capturing() ? owner_of(stream) : nullptr;
  if (owner == nullptr) return CUDA_SUCCESS;
  const ScopedContext scope(reinterpret_cast<CUcontext>(owner));
  const Reentry guard;
  CUevent event = nullptr;
  if (real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return CUDA_SUCCESS;
  const CUresult answer = real.cuEventQuery(event);
  real.cuEventDestroy_v2(event);
  return answer;
}

// A stream-ordered free of a block of ours: nothing waits, and the next owner's work comes after the stream
// reaches the free. Refused only where the driver would refuse: an invalid stream, one that captures, or a
// thread that may not while another one does.
CUresult free_ours_on(CUdeviceptr pointer, CUstream stream, FreeReport* report) {
  if (!thread_may_call()) {
    stats::count(Counter::failed_frees);
    return CUDA_ERROR_NOT_PERMITTED;
  }
  if (const CUresult error = error_of_context(); error != CUDA_SUCCESS) return error;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  {
    const Reentry guard;
    const CUresult valid = real.cuStreamIsCapturing(stream, &status);
    if (valid != CUDA_SUCCESS) return valid;
  }
  if (status != CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult allowed = ask_to_free_on(stream); allowed != CUDA_SUCCESS) {
    stats::count(Counter::failed_frees);
    return allowed;
  }
  const driver::Context streams = owner_of(stream);
  // (The driver refuses managed memory here.)
  const driver::Status answered = memory.free_dedicated(
      pointer, streams, [&] { return submit(stream, [&] { return real.cuMemFreeAsync(pointer, stream); }); });
  if (answered != allocator::kDeclined) return to_result(answered);
  report->block_returns();
  native::NativePool* const native = memory.native();
  if (native != nullptr && native->has_block(pointer)) {
    return submit(stream, [&] {
      return native->free_on(pointer, reinterpret_cast<driver::Stream>(stream)) ? CUDA_SUCCESS
                                                                                : CUDA_ERROR_INVALID_VALUE;
    });
  }
  memory::BlockInfo held;
  const bool is_elsewhere = streams != nullptr && memory.find(pointer, &held) && held.context != streams;
  order::Timeline* const elsewhere = is_elsewhere ? memory.order().of(streams) : nullptr;
  if (is_elsewhere && elsewhere == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto free = [&] {
    const Reentry guard;
    return memory.free_on(pointer, reinterpret_cast<driver::Stream>(stream), elsewhere);
  };
  // This stream does not capture. While another one does, an event may be recorded here, except in the legacy
  // stream, which orders itself with all others.
  Freed freed = Freed::kNotOurs;
  if (memory.order().is_capturing() && stream != CU_STREAM_LEGACY) {
    const cuda::RelaxedCapture allowed;
    const order::CaptureGate::Relaxed relaxed;
    freed = free();
  } else {
    freed = free();
  }
  // Its context has ended meanwhile, and the address may be another allocation's.
  if (freed != Freed::kDone && !is_ours(pointer))
    return submit(stream, [&] { return real.cuMemFreeAsync(pointer, stream); });
  if (freed != Freed::kDone) report->pointer_is_bad();
  return answer(freed);
}

template <typename Entry>
CUresult free_on(CUstream named_stream, const Entry& entry, CUdeviceptr pointer, CUstream stream) {
  FreeReport report(entry.call(), pointer, named_stream);
  return report.answer(is_ours(pointer)
                           ? free_ours_on(pointer, named_stream, &report)
                           : ordered(named_stream, Counter::async_frees, entry, pointer, stream));
}

// The full path of cuMemAlloc_v2, shared with the other entry points that hand out blocks.
CUresult allocate(CUdeviceptr* pointer, size_t bytes, Server* server) {
  *server = Server::kPool;
  if (loads_are_pending()) [[unlikely]]
    look_at_loads();
  if (pointer != nullptr && bytes != 0 && serves_allocation() && !memory.order().is_capturing()) {
    if (const driver::Context context = current_context()) {
      driver::Address address;
      // The fast path first: a program that is watched is served as it would be alone.
      const driver::Status status = memory.allocate(context, bytes, &address);
      if (status == driver::kSuccess) [[likely]] {
        note_device_memory();
        *pointer = address;
      } else {
        *pointer = 0;  // as the driver does
      }
      return to_result(status);
    }
  }
  *server = Server::kDriver;
  const auto call = [&] {
    return observe_call(cuda::Call::cuMemAlloc_v2, [&] {
      return pass_on(Counter::forwarded_allocations, real.cuMemAlloc_v2, pointer, bytes);
    });
  };
  const CUresult result = call();
  if (Reentry::inside() || !memory.order().is_capturing()) return result;
  // (Where the pool serves, it has made room by itself.)
  return call_with_room(
      result, [](allocator::Effort effort) { return make_room(effort, cuda::kHere); }, call);
}

// Frees while a stream captures, and frees of memory that is not the pool's.
CUresult free_elsewhere(CUdeviceptr pointer, FreeReport* report) {
  if (!is_ours(pointer))
    return observe_call(cuda::Call::cuMemFree_v2,
                        [&] { return pass_on(Counter::forwarded_frees, real.cuMemFree_v2, pointer); });
  const CaptureProbe probe(pointer);
  if (probe.answer() != CUDA_SUCCESS) return probe.answer();
  if (report != nullptr) report->block_returns();
  return answer(memory.free(pointer));
}

// Fast path miss: the thread cache has no block of this size.
[[gnu::noinline]] CUresult allocate_missed(CUdeviceptr* pointer, driver::Context context, size_t bytes) {
  driver::Address address = 0;  // as the driver does, if it fails
  const CUresult result = to_result(memory.allocate_slow(context, bytes, &address, Kept::kNone));
  *pointer = address;
  if (result == CUDA_SUCCESS) [[likely]]
    note_device_memory();
  count_failure(result, Counter::failed_allocations);
  return result;
}

// Slow path: everything the inlined path does not handle.
[[gnu::noinline]] CUresult allocate_slowly(CUdeviceptr* pointer, size_t bytes) {
  AllocationReport report(cuda::Call::cuMemAlloc_v2);
  Server server;
  const CUresult result = allocate(pointer, bytes, &server);
  count_failure(result, Counter::failed_allocations);
  return report.answer(server, pointer, bytes, result);
}

// A free inside a host function. The driver must not see an address of ours: it may be the start of a
// segment.
CUresult refuse_free(CUdeviceptr pointer, FreeReport* report) {
  if (!is_ours(pointer)) return free_elsewhere(pointer, report);
  stats::count(Counter::failed_frees);
  return CUDA_ERROR_NOT_PERMITTED;
}

// Completes a free after the pool answered `freed`. `report`: null where nobody listens.
CUresult finish_free(CUdeviceptr pointer, Freed freed, FreeReport* report) {
  if (freed == Freed::kNotLive && !is_ours(pointer)) freed = Freed::kNotOurs;
  const CUresult result = freed == Freed::kNotOurs ? free_elsewhere(pointer, report) : answer(freed);
  if (result == CUDA_ERROR_INVALID_VALUE && report != nullptr) report->pointer_is_bad();
  count_failure(result, Counter::failed_frees);
  return result;
}
[[gnu::noinline]] CUresult finish_free(CUdeviceptr pointer, memory::Unkept why, uint64_t asked) {
  if (!thread_may_call()) {
    memory.refuse_free(pointer, why, asked);
    return refuse_free(pointer, nullptr);
  }
  if (const CUresult error = error_of_context(); error != CUDA_SUCCESS) {
    memory.refuse_free(pointer, why, asked);
    return error;
  }
  return finish_free(pointer, memory.finish_free(pointer, why, asked), nullptr);
}

// Slow path of a free, also for memory that is not the pool's.
CUresult free_slowly(CUdeviceptr pointer, FreeReport* report) {
  Freed freed = Freed::kNotOurs;
  // Like the driver, needs no current context. An address of ours never reaches the driver: it may be the
  // start of a segment.
  if (is_serving() && !memory.order().is_capturing()) {
    if (!thread_may_call()) return refuse_free(pointer, report);
    if (const CUresult error = error_of_context(); error != CUDA_SUCCESS) return error;
    report->block_returns();
    freed = memory.free(pointer);
  }
  return finish_free(pointer, freed, report);
}
[[gnu::noinline]] CUresult free_slowly(CUdeviceptr pointer) {
  FreeReport report(cuda::Call::cuMemFree_v2, pointer);
  return report.answer(free_slowly(pointer, &report));
}

// Whether the fast path applies: nothing to do but hand out a block or take it back.
bool is_plain() { return serves_plainly() && !memory.order().is_capturing(); }

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  if (pointer != nullptr && is_plain()) [[likely]] {
    const driver::Context context = known_current_context();
    if (context != nullptr) [[likely]] {
      const Kept kept = memory.allocate_kept(context, bytes, pointer);
      if (kept == Kept::kTaken) [[likely]]
        return CUDA_SUCCESS;
      if (kept == Kept::kNone) return allocate_missed(pointer, context, bytes);
    }
  }
  return allocate_slowly(pointer, bytes);
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  if (!is_plain()) [[unlikely]]
    return free_slowly(pointer);
  uint64_t asked = 0;
  const memory::Unkept why = memory.free_kept(pointer, &asked);
  return why == memory::Unkept::kNot ? CUDA_SUCCESS : finish_free(pointer, why, asked);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height,
                            unsigned element) {
  // Every device known to us has this pitch: the width rounded up to 512. The driver handles unusual
  // arguments.
  constexpr size_t kPitchStep = 512;
  AllocationReport report(cuda::Call::cuMemAllocPitch_v2);
  const bool plain = pointer != nullptr && pitch != nullptr && width != 0 && height != 0 &&
                     (element == 4 || element == 8 || element == 16) && width < size_t{1} << 40 &&
                     height < size_t{1} << 20;
  if (!plain || !serves_allocation()) {
    const CUresult result = pass_on(Counter::pitched_allocations, real.cuMemAllocPitch_v2, pointer, pitch,
                                    width, height, element);
    if (result == CUDA_SUCCESS && !Reentry::inside()) stats::count(Counter::forwarded_allocations);
    count_failure(result, Counter::failed_allocations);
    const size_t bytes = result == CUDA_SUCCESS ? *pitch * height : width * height;
    return report.answer(Server::kDriver, pointer, bytes, result);
  }
  const size_t row = (width + kPitchStep - 1) & ~(kPitchStep - 1);
  Server server;
  const CUresult result = allocate(pointer, row * height, &server);
  *pitch = result == CUDA_SUCCESS ? row : 0;
  if (result == CUDA_SUCCESS) stats::count(Counter::pitched_allocations);
  count_failure(result, Counter::failed_allocations);
  return report.answer(server, pointer, row * height, result);
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  if (is_serving()) memory.idle().release_managed(current_context());
  const CUresult result = forward(Counter::pointer_questions, real.cuMemGetInfo_v2, free, total);
  if (result == CUDA_SUCCESS && free != nullptr && is_serving()) {
    *free += memory.idle().releasable_bytes(device_of());
  }
  return result;
}

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return allocate_on(named(stream, DefaultStream::kLegacy), real.cuMemAllocAsync, pointer, bytes, stream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return allocate_on(named(stream, DefaultStream::kPerThread), real.cuMemAllocAsync_ptsz, pointer, bytes,
                     stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return allocate_on(named(stream, DefaultStream::kLegacy), real.cuMemAllocFromPoolAsync, pointer, bytes,
                     pool, stream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
  return allocate_on(named(stream, DefaultStream::kPerThread), real.cuMemAllocFromPoolAsync_ptsz, pointer,
                     bytes, pool, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return free_on(named(stream, DefaultStream::kLegacy), real.cuMemFreeAsync, pointer, stream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
  return free_on(named(stream, DefaultStream::kPerThread), real.cuMemFreeAsync_ptsz, pointer, stream);
}

}  // namespace cupool::hooks
