// See serving.hpp.
#include "hooks/serving.hpp"

#include <new>

#include "base/log.hpp"
#include "config/options.hpp"
#include "cuda/cuda_driver.hpp"
#include "cuda/native_driver.hpp"
#include "hooks/aids.hpp"
#include "hooks/life.hpp"

namespace cupool::hooks {

namespace {

constinit cuda::CudaDriver cuda_driver;
constinit std::atomic<uint64_t> threads{0};
constinit thread_local uint64_t thread_number = 0;

// Errors after which every call in the context fails until it is destroyed.
bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
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
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
      return true;
    default:
      return false;
  }
}

}  // namespace

constinit NoDestroy<pool::Pools> detail::pools(&cuda_driver);
constinit std::atomic<bool> detail::serving{false};
constinit std::atomic<bool> detail::serving_plainly{false};

void set_serving(bool serves) {
  detail::serving.store(serves, std::memory_order_relaxed);
  detail::serving_plainly.store(serves && !watches_blocks(), std::memory_order_relaxed);
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

void start_native(bool first) {
  static constinit cuda::CudaNativeDriver native_driver;
  auto* const native = new (std::nothrow) pool::Native(cuda_driver, native_driver, pools.order());
  if (native == nullptr) return;
  pools.use_native(native, first ? pool::Pools::NativeUse::kFirst : pool::Pools::NativeUse::kLast);
}

void note_failure(CUresult result) {
  if (!is_sticky(result) || !is_serving()) return;
  if (const driver::Context context = current_context()) {
    static constinit log::Once once;
    if (once.first()) {
      log::line("error %d ended this context; cupool steps aside and the driver answers for it",
                static_cast<int>(result));
    }
    pools.fail(context);
  }
}

}  // namespace cupool::hooks
