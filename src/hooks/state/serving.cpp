// See serving.hpp.
#include "hooks/state/serving.hpp"

#include <algorithm>
#include <new>
#include <vector>

#include "base/after_fork.hpp"
#include "base/log.hpp"
#include "config/options.hpp"
#include "cuda/cuda_driver.hpp"
#include "cuda/live.hpp"
#include "cuda/mapping.hpp"
#include "cuda/native_driver.hpp"
#include "cuda/sources.hpp"
#include "mapped/spill.hpp"

namespace cupool::hooks {

namespace {

constinit cuda::CudaDriver cuda_driver;
constinit cuda::DeviceMemory device_memory;
constinit std::atomic<uint64_t> threads{0};
constinit thread_local uint64_t thread_number = 0;

// Whether the driver reports a sticky error for this context. Asked with the context current; the query does
// not wait.
bool has_ended(CUcontext context) {
  const Reentry guard;
  size_t free = 0;
  size_t total = 0;
  CUresult result = cuda::real.cuCtxPushCurrent_v2(context);
  if (result != CUDA_SUCCESS) return is_sticky(result);
  result = cuda::real.cuMemGetInfo_v2(&free, &total);
  cuda::real.cuCtxPopCurrent_v2(&context);
  return is_sticky(result);
}

}  // namespace

bool is_sticky(CUresult result) {
  switch (static_cast<int>(result)) {  // older headers do not name all of them
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case cuda::kErrorContained:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case cuda::kErrorTensorMemoryLeak:
      return true;
    default:
      return false;
  }
}

constinit NoDestroy<memory::Memory> detail::memory(&cuda_driver, &device_memory);
constinit cuda::CudaMapping detail::mapping;
CUPOOL_AFTER_FORK(memory_after_fork, [] { memory.forget_after_fork(); });
constinit std::atomic<bool> detail::any_failed{false};
constinit std::atomic<uint32_t> detail::slow_reasons{static_cast<uint32_t>(SlowReason::kNotServing)};

void set_slow(SlowReason reason, bool holds) {
  const auto bit = static_cast<uint32_t>(reason);
  if (holds) {
    detail::slow_reasons.fetch_or(bit, std::memory_order_release);
  } else {
    detail::slow_reasons.fetch_and(~bit, std::memory_order_release);
  }
}

bool detail::start_serving() {
  if (Reentry::inside()) return false;
  return cuda::find_driver(cuda::Search::kLoad) && is_serving();
}

order::Lane lane_of_this_thread() {
  if (!order::kThreadLanes) return order::lane_of_thread(1);
  if (thread_number == 0) thread_number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return order::lane_of_thread(thread_number);
}

driver::Context owner_of(CUstream stream) {
  if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return current_context();
  const Reentry guard;
  CUcontext context = nullptr;
  if (cuda::real.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) return nullptr;
  if (green_contexts.any()) context = green_contexts.owner(context);
  return reinterpret_cast<driver::Context>(context);
}

order::Timeline* find_timeline(CUstream stream) {
  return memory.order().any() ? memory.order().find(owner_of(stream)) : nullptr;
}

bool is_capturing(CUstream stream) {
  return memory.driver().is_capturing(reinterpret_cast<driver::Stream>(stream));
}

void start_native(bool first) {
  static constinit cuda::CudaNativeDriver native_driver;
  auto* const native = new (std::nothrow)
      native::NativePool(cuda_driver, device_memory, native_driver, memory.order(), memory.in_flight());
  if (native == nullptr) return;
  memory.use_native(native, first ? memory::Memory::NativeUse::kFirst : memory::Memory::NativeUse::kLast);
}

void start_mapping(bool segments, Size spill) {
  if (segments) memory.pools().use_mapped(&hooks::mapping);
  if (spill.of(kUnlimited) == 0) return;
  memory.shortage().use_spill(new (std::nothrow) mapped::Spill(cuda_driver, mapping, spill));
}

void note_failure(CUresult result) {
  if (!is_sticky(result) || !is_serving()) return;
  // The failed call may have used a stream or event of a context that is not current.
  std::vector<CUcontext> contexts = cuda::live.contexts();
  const auto current = reinterpret_cast<CUcontext>(current_context());
  if (std::find(contexts.begin(), contexts.end(), current) == contexts.end()) contexts.push_back(current);
  std::erase_if(contexts, [](CUcontext context) { return context == nullptr || !has_ended(context); });
  // No context reports the error: the driver has not noticed it yet in the one that the call came from.
  if (contexts.empty() && current != nullptr) contexts.push_back(current);
  static constinit log::Once once;
  if (!contexts.empty() && once.first()) {
    log::line("error {} ended this context; cupool steps aside and the driver answers for it",
              static_cast<int>(result));
  }
  detail::any_failed.store(true, std::memory_order_relaxed);
  for (CUcontext context : contexts) memory.fail(reinterpret_cast<driver::Context>(context));
}

}  // namespace cupool::hooks
