// What a program asks about a pointer: its range, its attributes, a handle for it.
#include "hooks/forward.hpp"

using cupool::cuda::real;
using cupool::hooks::forward;
using cupool::stats::Counter;

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  return forward(Counter::pointer_questions, real.cuMemGetAddressRange_v2, base, bytes, pointer);
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return forward(Counter::pointer_questions, real.cuPointerGetAttribute, data, attribute, pointer);
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer) {
  return forward(Counter::pointer_questions, real.cuPointerGetAttributes, count, attributes, data, pointer);
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return forward(real.cuPointerSetAttribute, value, attribute, pointer);
}

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr pointer, size_t bytes, CUmemRangeHandleType type,
                                       unsigned long long flags) {
  return forward(real.cuMemGetHandleForAddressRange, handle, pointer, bytes, type, flags);
}
