// Entry points that set memory. None of them waits: on device memory even the plain forms return at once.
#include <cuda.h>

#include "sim/copies.hpp"
#include "sim/entry.hpp"

using namespace cupool::sim;

namespace {

CUresult set(Site& site, CUstream stream, CUdeviceptr p, std::uint64_t pitch, unsigned value, unsigned unit,
             std::uint64_t width, std::uint64_t height) {
  return on_stream_anywhere(site, stream, [&](const StreamPtr& s) {
    return submit_memset(s, site.name(), p, pitch, value, unit, width, height);
  });
}

}  // namespace

extern "C" {

CUresult cuMemsetD8_v2(CUdeviceptr p, unsigned char value, size_t n) {
  return set(SIM_SITE(cuMemsetD8_v2), nullptr, p, 0, value, 1, n, 1);
}
CUresult cuMemsetD16_v2(CUdeviceptr p, unsigned short value, size_t n) {
  return set(SIM_SITE(cuMemsetD16_v2), nullptr, p, 0, value, 2, n, 1);
}
CUresult cuMemsetD32_v2(CUdeviceptr p, unsigned int value, size_t n) {
  return set(SIM_SITE(cuMemsetD32_v2), nullptr, p, 0, value, 4, n, 1);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr p, size_t pitch, unsigned char value, size_t width, size_t height) {
  return set(SIM_SITE(cuMemsetD2D8_v2), nullptr, p, pitch, value, 1, width, height);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr p, size_t pitch, unsigned short value, size_t width, size_t height) {
  return set(SIM_SITE(cuMemsetD2D16_v2), nullptr, p, pitch, value, 2, width, height);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr p, size_t pitch, unsigned int value, size_t width, size_t height) {
  return set(SIM_SITE(cuMemsetD2D32_v2), nullptr, p, pitch, value, 4, width, height);
}

CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t n, CUstream stream) {
  return set(SIM_SITE(cuMemsetD8Async), stream, p, 0, value, 1, n, 1);
}
CUresult cuMemsetD16Async(CUdeviceptr p, unsigned short value, size_t n, CUstream stream) {
  return set(SIM_SITE(cuMemsetD16Async), stream, p, 0, value, 2, n, 1);
}
CUresult cuMemsetD32Async(CUdeviceptr p, unsigned int value, size_t n, CUstream stream) {
  return set(SIM_SITE(cuMemsetD32Async), stream, p, 0, value, 4, n, 1);
}
CUresult cuMemsetD2D8Async(CUdeviceptr p, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream stream) {
  return set(SIM_SITE(cuMemsetD2D8Async), stream, p, pitch, value, 1, width, height);
}
CUresult cuMemsetD2D16Async(CUdeviceptr p, size_t pitch, unsigned short value, size_t width, size_t height,
                            CUstream stream) {
  return set(SIM_SITE(cuMemsetD2D16Async), stream, p, pitch, value, 2, width, height);
}
CUresult cuMemsetD2D32Async(CUdeviceptr p, size_t pitch, unsigned int value, size_t width, size_t height,
                            CUstream stream) {
  return set(SIM_SITE(cuMemsetD2D32Async), stream, p, pitch, value, 4, width, height);
}

}  // extern "C"
