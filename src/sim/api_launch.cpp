// Entry points that launch kernels. A function of a module launches in its own context only; a library's
// kernel in any. Arguments are read during the call, through kernelParams.
#include <cuda.h>

#include "sim/charges.hpp"
#include "sim/entry.hpp"
#include "sim/kernels.hpp"

using namespace cupool::sim;

namespace {

struct Shape {
  unsigned grid[3];
  unsigned threads[3];
};

bool sound(const Shape& shape) {
  for (int i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.threads[i] == 0) return false;
  }
  return static_cast<std::uint64_t>(shape.threads[0]) * shape.threads[1] * shape.threads[2] <= 1024;
}

bool overlaps(const CUlaunchConfig& config) {
  for (unsigned i = 0; config.attrs != nullptr && i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed != 0) {
      return true;
    }
  }
  return false;
}

CUresult launch(Site& site, CUfunction handle, const Shape& shape, CUstream stream_handle, void** parameters,
                void** extra, bool overlapping = false) {
  return on_stream(site, stream_handle, [&](const StreamPtr& stream) -> CUresult {
    const auto function = state().functions.find(handle);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const bool foreign = function->context_id != 0 && function->context_id != stream->context->id;
    if (foreign) return CUDA_ERROR_INVALID_HANDLE;
    if (!sound(shape) || extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult prepared = prepare_launch(function->kernel, *stream->context);
    if (prepared != CUDA_SUCCESS) return prepared;
    if (!function->is_loaded && !charge(stream->context->memory_owner(), kKernelCharge))
      return CUDA_ERROR_OUT_OF_MEMORY;
    function->is_loaded = true;
    auto work = kernel_work(function->kernel, parameters, *stream->context);
    if (work == nullptr) return CUDA_ERROR_INVALID_VALUE;
    work->overlaps = overlapping;
    return submit(stream, std::move(work));
  });
}

}  // namespace

extern "C" {

CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                        unsigned int by, unsigned int bz, unsigned int, CUstream stream, void** parameters,
                        void** extra) {
  return launch(SIM_SITE(cuLaunchKernel), f, Shape{{gx, gy, gz}, {bx, by, bz}}, stream, parameters, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** parameters, void** extra) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  const Shape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                    {config->blockDimX, config->blockDimY, config->blockDimZ}};
  return launch(SIM_SITE(cuLaunchKernelEx), f, shape, config->hStream, parameters, extra, overlaps(*config));
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                                   unsigned int bx, unsigned int by, unsigned int bz, unsigned int,
                                   CUstream stream, void** parameters) {
  return launch(SIM_SITE(cuLaunchCooperativeKernel), f, Shape{{gx, gy, gz}, {bx, by, bz}}, stream, parameters,
                nullptr);
}

}  // extern "C"
