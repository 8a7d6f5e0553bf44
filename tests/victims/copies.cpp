// Victim: plain copies between memory of two devices that have no access to each other, and within one, by
// every function that makes one, from either side, on streams of either device. Prints one line for each that
// was refused or brought wrong bytes; ends with 77 where there is one device.
#include <cuda.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "victim.hpp"

namespace {

constexpr size_t kBytes = size_t{3} << 20;
constexpr size_t kRow = 4096;

struct Place {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr block = 0;
};

Place open(CUdevice device) {
  Place place;
  VICTIM_CHECK(cuDevicePrimaryCtxRetain(&place.context, device));
  VICTIM_CHECK(cuCtxSetCurrent(place.context));
  VICTIM_CHECK(cuStreamCreate(&place.stream, CU_STREAM_NON_BLOCKING));
  VICTIM_CHECK(cuMemAlloc(&place.block, kBytes));
  return place;
}

void set(const Place& place, unsigned char value) {
  VICTIM_CHECK(cuCtxSetCurrent(place.context));
  VICTIM_CHECK(cuMemsetD8(place.block, value, kBytes));
  VICTIM_CHECK(cuCtxSynchronize());
}

bool is_all(const Place& place, unsigned char value) {
  std::vector<unsigned char> bytes(kBytes);
  VICTIM_CHECK(cuCtxSetCurrent(place.context));
  VICTIM_CHECK(cuMemcpyDtoH(bytes.data(), place.block, kBytes));
  for (const unsigned char byte : bytes) {
    if (byte != value) return false;
  }
  return true;
}

template <typename Copy>
Copy box(CUdeviceptr to, CUdeviceptr from) {
  Copy copy = {};
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.dstDevice = to;
  copy.srcDevice = from;
  copy.dstPitch = copy.srcPitch = kRow;
  copy.WidthInBytes = kRow;
  copy.Height = kBytes / kRow;
  return copy;
}

CUDA_MEMCPY3D deep_box(CUdeviceptr to, CUdeviceptr from) {
  constexpr size_t kDepth = 2;
  auto copy = box<CUDA_MEMCPY3D>(to, from);
  copy.Height = copy.dstHeight = copy.srcHeight = kBytes / kRow / kDepth;
  copy.Depth = kDepth;
  return copy;
}

using Copy = std::function<CUresult(CUdeviceptr to, CUdeviceptr from, CUstream stream)>;
struct Named {
  const char* name;
  Copy copy;
};

const std::array kCopies = {
    Named{"cuMemcpy", [](CUdeviceptr to, CUdeviceptr from, CUstream) { return cuMemcpy(to, from, kBytes); }},
    Named{"cuMemcpyAsync",
          [](CUdeviceptr to, CUdeviceptr from, CUstream s) { return cuMemcpyAsync(to, from, kBytes, s); }},
    Named{"cuMemcpyDtoD",
          [](CUdeviceptr to, CUdeviceptr from, CUstream) { return cuMemcpyDtoD(to, from, kBytes); }},
    Named{"cuMemcpyDtoDAsync", [](CUdeviceptr to, CUdeviceptr from,
                                  CUstream s) { return cuMemcpyDtoDAsync(to, from, kBytes, s); }},
    Named{"cuMemcpyDtoDAsync on the thread's stream",
          [](CUdeviceptr to, CUdeviceptr from, CUstream) {
            return cuMemcpyDtoDAsync(to, from, kBytes, CU_STREAM_PER_THREAD);
          }},
    Named{"cuMemcpy2D",
          [](CUdeviceptr to, CUdeviceptr from, CUstream) {
            const auto copy = box<CUDA_MEMCPY2D>(to, from);
            return cuMemcpy2D(&copy);
          }},
    Named{"cuMemcpy2DAsync",
          [](CUdeviceptr to, CUdeviceptr from, CUstream s) {
            const auto copy = box<CUDA_MEMCPY2D>(to, from);
            return cuMemcpy2DAsync(&copy, s);
          }},
    Named{"cuMemcpy3D",
          [](CUdeviceptr to, CUdeviceptr from, CUstream) {
            const CUDA_MEMCPY3D copy = deep_box(to, from);
            return cuMemcpy3D(&copy);
          }},
    Named{"cuMemcpy3DAsync",
          [](CUdeviceptr to, CUdeviceptr from, CUstream s) {
            const CUDA_MEMCPY3D copy = deep_box(to, from);
            return cuMemcpy3DAsync(&copy, s);
          }},
};

int try_one(const Named& named, const Place& from, const Place& to, const Place& maker) {
  set(from, 7);
  set(to, 1);
  VICTIM_CHECK(cuCtxSetCurrent(maker.context));
  const CUresult made = named.copy(to.block, from.block, maker.stream);
  const CUresult done = cuCtxSynchronize();
  if (made == CUDA_SUCCESS && done == CUDA_SUCCESS && is_all(to, 7)) return 0;
  std::printf("%s: %d, then %d\n", named.name, static_cast<int>(made), static_cast<int>(done));
  return 1;
}

}  // namespace

int main() {
  int devices = 0;
  VICTIM_CHECK(cuInit(0));
  VICTIM_CHECK(cuDeviceGetCount(&devices));
  if (devices < 2) return 77;
  const std::array places = {open(0), open(1)};
  const std::array twins = {open(0), open(1)};
  int wrong = 0;
  for (const Named& named : kCopies) {
    for (size_t from = 0; from < 2; ++from) {
      for (const Place& maker : places) {
        wrong += try_one(named, places[from], places[1 - from], maker);
        wrong += try_one(named, places[from], twins[from], maker);
      }
    }
  }
  return wrong != 0 ? 1 : 0;
}
