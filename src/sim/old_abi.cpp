// The first, 32-bit forms of calls that have a later one. Where pointers or sizes are 32 bits wide there is
// nothing to give: contexts of today belong to the 64-bit interface, and mixing the two is INVALID_CONTEXT.
// The few whose arguments never changed go on to their later form.
#include <cuda.h>

#include "sim/entry.hpp"

using namespace cupool::sim;

namespace {

CUresult mixed(Site& site) {
  return in_driver(site, [] { return CUDA_ERROR_INVALID_CONTEXT; });
}

}  // namespace

extern "C" {

CUresult cuMemAlloc(CUdeviceptr_v1*, unsigned int) { return mixed(SIM_SITE(cuMemAlloc)); }
CUresult cuMemAllocPitch(CUdeviceptr_v1*, unsigned int*, unsigned int, unsigned int, unsigned int) {
  return mixed(SIM_SITE(cuMemAllocPitch));
}
CUresult cuMemFree(CUdeviceptr_v1) { return mixed(SIM_SITE(cuMemFree)); }
CUresult cuMemGetInfo(unsigned int*, unsigned int*) { return mixed(SIM_SITE(cuMemGetInfo)); }
CUresult cuMemGetAddressRange(CUdeviceptr_v1*, unsigned int*, CUdeviceptr_v1) {
  return mixed(SIM_SITE(cuMemGetAddressRange));
}
CUresult cuDeviceTotalMem(unsigned int*, CUdevice) { return mixed(SIM_SITE(cuDeviceTotalMem)); }
CUresult cuMemcpyHtoD(CUdeviceptr_v1, const void*, unsigned int) { return mixed(SIM_SITE(cuMemcpyHtoD)); }
CUresult cuMemcpyDtoH(void*, CUdeviceptr_v1, unsigned int) { return mixed(SIM_SITE(cuMemcpyDtoH)); }
CUresult cuMemcpyDtoD(CUdeviceptr_v1, CUdeviceptr_v1, unsigned int) { return mixed(SIM_SITE(cuMemcpyDtoD)); }
CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1, const void*, unsigned int, CUstream) {
  return mixed(SIM_SITE(cuMemcpyHtoDAsync));
}
CUresult cuMemcpyDtoHAsync(void*, CUdeviceptr_v1, unsigned int, CUstream) {
  return mixed(SIM_SITE(cuMemcpyDtoHAsync));
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1, CUdeviceptr_v1, unsigned int, CUstream) {
  return mixed(SIM_SITE(cuMemcpyDtoDAsync));
}
CUresult cuMemsetD8(CUdeviceptr_v1, unsigned char, unsigned int) { return mixed(SIM_SITE(cuMemsetD8)); }
CUresult cuMemsetD16(CUdeviceptr_v1, unsigned short, unsigned int) { return mixed(SIM_SITE(cuMemsetD16)); }
CUresult cuMemsetD32(CUdeviceptr_v1, unsigned int, unsigned int) { return mixed(SIM_SITE(cuMemsetD32)); }
CUresult cuModuleGetGlobal(CUdeviceptr_v1*, unsigned int*, CUmodule, const char*) {
  return mixed(SIM_SITE(cuModuleGetGlobal));
}

CUresult cuCtxCreate(CUcontext* out, unsigned int flags, CUdevice device) {
  const CUresult injected = SIM_SITE(cuCtxCreate).enter();
  return injected != CUDA_SUCCESS ? injected : cuCtxCreate_v2(out, flags, device);
}
CUresult cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }
CUresult cuCtxPushCurrent(CUcontext context) { return cuCtxPushCurrent_v2(context); }
CUresult cuCtxPopCurrent(CUcontext* context) { return cuCtxPopCurrent_v2(context); }
CUresult cuStreamDestroy(CUstream stream) { return cuStreamDestroy_v2(stream); }
CUresult cuEventDestroy(CUevent event) { return cuEventDestroy_v2(event); }

}  // extern "C"
