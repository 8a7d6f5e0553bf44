// What all victims do with a driver: set up a device, allocate, launch the three kernels, count and verify.
// A victim counts every call it makes, so that a test can hold cupool's and the driver's counts against it.
// Device may be used by several threads at once: it holds handles and atomic counts only.
#pragma once

#include <atomic>
#include <cstdio>
#include <vector>

#include "api.hpp"

namespace victim {

inline const char kKernels[] =
#include "kernels.ptx.inc"
    ;

class Device {
 public:
  explicit Device(const Api& api) : api_(api) {
    VICTIM_CHECK(api_.cuInit(0));
    VICTIM_CHECK(api_.cuDeviceGet(&device_, 0));
    VICTIM_CHECK(api_.cuDevicePrimaryCtxRetain(&context_, device_));
    enter_thread();
    VICTIM_CHECK(api_.cuModuleLoadData(&module_, kKernels));
    VICTIM_CHECK(api_.cuModuleGetFunction(&fill_, module_, "fill"));
    VICTIM_CHECK(api_.cuModuleGetFunction(&check_, module_, "check"));
    VICTIM_CHECK(api_.cuModuleGetFunction(&spin_, module_, "spin"));
    errors_ = alloc(kVerdictBytes);
    VICTIM_CHECK(api_.cuMemsetD8_v2(errors_, 0, kVerdictBytes));
  }

  // Each further thread that uses the device calls this first.
  void enter_thread() { VICTIM_CHECK(api_.cuCtxSetCurrent(context_)); }

  CUdeviceptr alloc(size_t bytes) {
    CUdeviceptr p = 0;
    VICTIM_CHECK(api_.cuMemAlloc_v2(&p, bytes));
    ++allocs_;
    return p;
  }

  void free(CUdeviceptr p) {
    VICTIM_CHECK(api_.cuMemFree_v2(p));
    ++frees_;
  }

  void fill(CUdeviceptr p, size_t bytes, unsigned value, CUstream stream = nullptr) {
    void* parameters[] = {&p, &bytes, &value};
    launch(fill_, bytes, stream, parameters);
  }

  void check(CUdeviceptr p, size_t bytes, unsigned value, CUstream stream = nullptr) {
    void* parameters[] = {&p, &bytes, &value, &errors_};
    launch(check_, bytes, stream, parameters);
  }

  void spin(unsigned long long ns, CUstream stream = nullptr) {
    void* parameters[] = {&ns};
    launch(spin_, 1, stream, parameters);
  }

  // Waits, reads the verdict, prints one line and gives the exit code: 0 when every byte was right.
  int finish(const char* name) {
    unsigned long long wrong = 0;
    VICTIM_CHECK(api_.cuCtxSynchronize());
    VICTIM_CHECK(api_.cuMemcpyDtoH_v2(&wrong, errors_, sizeof(wrong)));
    free(errors_);
    std::printf("%s: allocs=%lu frees=%lu launches=%lu wrong=%llu\n", name, allocs_.load(), frees_.load(),
                launches_.load(), wrong);
    std::fflush(stdout);
    VICTIM_CHECK(api_.cuDevicePrimaryCtxRelease_v2(device_));
    return wrong == 0 ? 0 : 1;
  }

  const Api& api() const { return api_; }
  CUdevice device() const { return device_; }

 private:
  void launch(CUfunction function, size_t bytes, CUstream stream, void** parameters) {
    constexpr unsigned kThreads = 256;
    constexpr size_t kMostBlocks = 1024;
    const size_t blocks = (bytes + kThreads - 1) / kThreads;
    const unsigned grid = static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
    VICTIM_CHECK(api_.cuLaunchKernel(function, grid, 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr));
    ++launches_;
  }

  const Api api_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction fill_ = nullptr, check_ = nullptr, spin_ = nullptr;
  static constexpr size_t kVerdictBytes = 4 * sizeof(unsigned long long);
  CUdeviceptr errors_ = 0;
  std::atomic<unsigned long> allocs_{0}, frees_{0}, launches_{0};
};

// The common job: blocks of many sizes, each filled and checked with its own value, freed with the check
// still queued, then taken again at the same sizes so that recycled memory is verified too.
inline void exercise(Device& device, unsigned rounds = 3, CUstream stream = nullptr) {
  const size_t sizes[] = {1, 4, 511, 512, 513, 4096, 65537, 1 << 20, (1 << 20) + 1, 3 << 20};
  for (unsigned round = 0; round < rounds; ++round) {
    std::vector<CUdeviceptr> blocks;
    unsigned value = 17 * (round + 1);
    for (size_t bytes : sizes) {
      blocks.push_back(device.alloc(bytes));
      device.fill(blocks.back(), bytes, value++, stream);
    }
    value = 17 * (round + 1);
    for (size_t i = 0; i < blocks.size(); ++i) device.check(blocks[i], sizes[i], value++, stream);
    for (CUdeviceptr p : blocks) device.free(p);
  }
}

}  // namespace victim
