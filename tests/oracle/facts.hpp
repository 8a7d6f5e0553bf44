// What the chapters of facts share: a device, the three kernels, and a way to say which answer was wrong.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdio>

namespace facts {

inline const char kKernels[] =
#include "../victims/kernels.ptx.inc"
    ;

inline int wrong_answers = 0;

inline void expect(long long got, long long wanted, const char* what, int line) {
  if (got == wanted) return;
  ++wrong_answers;
  std::printf("facts: line %d: %s: got %lld, wanted %lld\n", line, what, got, wanted);
}
#define EXPECT(what, wanted) \
  expect(static_cast<long long>(what), static_cast<long long>(wanted), #what, __LINE__)
#define MUST(call) EXPECT(call, CUDA_SUCCESS)

// An answer that nobody has read off a GPU yet. The simulated driver gives it; a GPU that gives another is
// told of on stderr, and the test does not fail for it.
bool simulated();
inline void guess(long long got, long long wanted, const char* what, int line) {
  if (simulated()) {
    expect(got, wanted, what, line);
  } else if (got != wanted) {
    std::fprintf(stderr, "facts: line %d: %s: this GPU says %lld, the simulated driver %lld\n", line, what,
                 got, wanted);
  }
}
#define GUESS(what, wanted) \
  guess(static_cast<long long>(what), static_cast<long long>(wanted), #what, __LINE__)

inline constexpr unsigned long long kLong = 2'000'000;

struct Device {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUfunction fill = nullptr;
  CUfunction spin = nullptr;

  Device() {
    CUmodule module = nullptr;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, kKernels));
    MUST(cuModuleGetFunction(&fill, module, "fill"));
    MUST(cuModuleGetFunction(&spin, module, "spin"));
    CUfunction none = nullptr;
    EXPECT(cuModuleGetFunction(&none, module, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
  }
  void launch_fill(CUstream stream, CUdeviceptr p, size_t bytes, unsigned value) {
    void* parameters[] = {&p, &bytes, &value};
    MUST(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  }
  CUresult launch_spin(CUstream stream) {
    unsigned long long ns = kLong;
    void* parameters[] = {&ns};
    return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
  }
};

inline CUstream new_stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, flags));
  return stream;
}

inline CUevent new_event() {
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return event;
}

inline CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr p = 0;
  MUST(cuMemAlloc_v2(&p, bytes));
  return p;
}

// The chapters.
void answers();
void blocking();
void contexts();
void proc_address();
void illegal();
void order();
void gone();
void streams();
void capture();
// Calls beside work that is not done.
void owners();
void full_queue();
void ordered_free();
void capture_threads();
void peer_copies();
void programmatic();
void green();
void ipc();
int open_handle(const char* text);
// Mapped memory.
void mapped();
void mapped_refusals();
void mapped_access();
void mapped_host();
void mapped_contexts();
void mapped_twice();
void mapped_sharing();
void no_access();
void no_access_copy();
void read_only();
int open_chunk(const char* descriptor);

}  // namespace facts
