// What is known of the real driver, asked of the one at hand: one chapter per argument. Says nothing when all
// answers are right, names each that is not. Runs on a GPU too, where the PTX gives the kernels.
// This file: allocation, waiting, contexts, entry points.
#include "facts.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace facts {

void answers() {
  CUdeviceptr p = 0;
  EXPECT(cuMemAlloc_v2(&p, 16), CUDA_ERROR_NOT_INITIALIZED);
  MUST(cuInit(0));
  EXPECT(cuMemAlloc_v2(&p, 16), CUDA_ERROR_INVALID_CONTEXT);
  Device d;
  MUST(cuMemFree_v2(0));
  EXPECT(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemAlloc_v2(nullptr, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemAlloc_v2(&p, 1ull << 50), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT(cuMemAlloc_v2(&p, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  p = allocate(4096);
  EXPECT(cuMemFree_v2(p + 512), CUDA_ERROR_INVALID_VALUE);
  MUST(cuMemFree_v2(p));
  EXPECT(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);

  CUstream stream = new_stream();
  p = allocate(4096);
  // A second free of it is the program's fault, and a real driver may crash.
  MUST(cuMemFreeAsync(p, stream));
  MUST(cuMemAllocAsync(&p, 4096, stream));
  MUST(cuMemFree_v2(p));

  CUdeviceptr base = 0;
  size_t size = 0;
  CUdeviceptr one = allocate(1);
  EXPECT(one % 512, 0);
  MUST(cuMemGetAddressRange_v2(&base, &size, one));
  EXPECT(base == one, true);
  EXPECT(size, 1);
  CUdeviceptr big = allocate((1 << 20) + 1);
  MUST(cuMemGetAddressRange_v2(&base, &size, big + 77));
  EXPECT(base == big, true);
  EXPECT(size, (1 << 20) + 1);
  size_t pitch = 0;
  CUdeviceptr rows = 0;
  MUST(cuMemAllocPitch_v2(&rows, &pitch, 1000, 3, 4));
  EXPECT(pitch, 1024);
  MUST(cuMemGetAddressRange_v2(&base, &size, rows));
  EXPECT(size, 3072);
  MUST(cuMemFree_v2(rows));
  MUST(cuMemFree_v2(big));

  size_t free_before = 0;
  size_t free_after = 0;
  size_t total = 0;
  MUST(cuMemGetInfo_v2(&free_before, &total));
  CUdeviceptr step = allocate((2 << 20) + 1);
  MUST(cuMemGetInfo_v2(&free_after, nullptr));
  EXPECT(free_before - free_after, 4 << 20);
  MUST(cuMemFree_v2(step));

  unsigned word = 1;
  CUdeviceptr large = allocate(4 << 20);
  d.launch_fill(stream, large, 4 << 20, 7);
  MUST(cuMemFree_v2(large));
  large = allocate(4 << 20);
  MUST(cuMemcpyDtoH_v2(&word, large, sizeof word));
  EXPECT(word, 0);
  CUdeviceptr small = allocate(4096);
  d.launch_fill(stream, small, 4096, 7);
  MUST(cuMemFree_v2(small));
  small = allocate(4096);
  MUST(cuMemcpyDtoH_v2(&word, small, sizeof word));
  EXPECT(word, 0x07070707);
}

namespace {

// Whether the work queued before the call is done after it.
template <typename Call>
bool waits(Device& d, Call&& call) {
  CUstream stream = new_stream();
  CUevent done = new_event();
  for (int i = 0; i < 16; ++i) MUST(d.launch_spin(stream));
  MUST(cuEventRecord(done, stream));
  call(stream);
  const bool waited = cuEventQuery(done) == CUDA_SUCCESS;
  MUST(cuCtxSynchronize());
  MUST(cuEventDestroy_v2(done));
  MUST(cuStreamDestroy_v2(stream));
  return waited;
}

}  // namespace

void blocking() {
  Device d;
  CUdeviceptr p = allocate(4096);
  EXPECT(waits(d, [&](CUstream) { MUST(cuMemFree_v2(p)); }), true);
  p = allocate(8 << 20);
  EXPECT(waits(d, [&](CUstream) { MUST(cuMemFree_v2(p)); }), true);
  MUST(cuMemAllocManaged(&p, 1 << 20, CU_MEM_ATTACH_GLOBAL));
  EXPECT(waits(d, [&](CUstream) { MUST(cuMemFree_v2(p)); }), true);
  size_t pitch = 0;
  CUipcMemHandle handle;
  CUdeviceptr q = allocate(4096);
  // The simulated device may run ahead by chance: that one attempt in five was not waited for is enough.
  int waited = 0;
  for (int i = 0; i < 5; ++i) {
    waited += waits(d, [&](CUstream s) {
      MUST(cuMemAlloc_v2(&p, 1 << 20));
      MUST(cuMemAllocPitch_v2(&p, &pitch, 100, 100, 4));
      MUST(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
      MUST(cuIpcGetMemHandle(&handle, q));
      MUST(cuMemAllocAsync(&p, 4096, s));
      MUST(cuMemFreeAsync(p, s));
    });
  }
  EXPECT(waited < 5, true);
}

void proc_address() {
  Device d;
  void* found = nullptr;
  CUdriverProcAddressQueryResult status;
  MUST(cuGetProcAddress_v2("cuMemAlloc", &found, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  EXPECT(found == reinterpret_cast<void*>(&cuMemAlloc_v2), true);
  EXPECT(status, CU_GET_PROC_ADDRESS_SUCCESS);
  void* per_thread = nullptr;
  MUST(cuGetProcAddress_v2("cuMemAlloc", &per_thread, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                           &status));
  EXPECT(found == per_thread, true);
  MUST(cuGetProcAddress_v2("cuLaunchKernel", &found, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  MUST(cuGetProcAddress_v2("cuLaunchKernel", &per_thread, 13000,
                           CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
  EXPECT(found != per_thread, true);
  MUST(cuGetProcAddress_v2("cuLaunchKernel", &per_thread, 4000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                           &status));
  EXPECT(per_thread == nullptr, true);
  EXPECT(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  MUST(cuGetProcAddress_v2("cuCtxRecordEvent", &found, 12050, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  EXPECT(found != nullptr, true);
  MUST(cuGetProcAddress_v2("cuCtxRecordEvent", &found, 12040, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  EXPECT(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT(found == nullptr, true);
}

void contexts() {
  Device d;
  CUdeviceptr p = allocate(4096);
  MUST(cuDevicePrimaryCtxReset_v2(d.device));
  CUcontext again = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&again, d.device));
  EXPECT(again == d.context, true);
  MUST(cuCtxSetCurrent(again));
  EXPECT(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
  p = allocate(4096);
  CUcontext own = nullptr;
  MUST(cuCtxCreate_v4(&own, nullptr, 0, d.device));
  allocate(4096);
  MUST(cuCtxDestroy_v2(own));
  CUcontext current = nullptr;
  MUST(cuCtxGetCurrent(&current));
  EXPECT(current == again, true);
  MUST(cuMemFree_v2(p));
  const pid_t child = fork();
  if (child == 0) _exit(cuMemAlloc_v2(&p, 16) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT(status, 0);
}

void illegal() {
  Device d;
  CUstream stream = new_stream();
  CUdeviceptr p = 0;
  d.launch_fill(stream, 0x1000, 64, 1);
  EXPECT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT(cuMemAlloc_v2(&p, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT(cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace facts

namespace {

struct Chapter {
  const char* name;
  void (*tell)();
};
constexpr Chapter kChapters[] = {
    {"answers", facts::answers},
    {"blocking", facts::blocking},
    {"order", facts::order},
    {"gone", facts::gone},
    {"streams", facts::streams},
    {"capture", facts::capture},
    {"owners", facts::owners},
    {"full_queue", facts::full_queue},
    {"ordered_free", facts::ordered_free},
    {"capture_threads", facts::capture_threads},
    {"peer_copies", facts::peer_copies},
    {"programmatic", facts::programmatic},
    {"green", facts::green},
    {"contexts", facts::contexts},
    {"illegal", facts::illegal},
    {"proc_address", facts::proc_address},
    {"ipc", facts::ipc},
    {"mapped", facts::mapped},
    {"mapped_refusals", facts::mapped_refusals},
    {"mapped_access", facts::mapped_access},
    {"mapped_host", facts::mapped_host},
    {"mapped_contexts", facts::mapped_contexts},
    {"mapped_twice", facts::mapped_twice},
    {"mapped_sharing", facts::mapped_sharing},
    {"no_access", facts::no_access},
    {"no_access_copy", facts::no_access_copy},
    {"read_only", facts::read_only},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "open") == 0) return facts::open_handle(argv[2]);
  if (argc == 3 && std::strcmp(argv[1], "open-chunk") == 0) return facts::open_chunk(argv[2]);
  for (const Chapter& chapter : kChapters) {
    if (argc != 2 || std::strcmp(argv[1], chapter.name) != 0) continue;
    chapter.tell();
    return facts::wrong_answers == 0 ? 0 : 1;
  }
  std::fprintf(stderr, "usage: facts CHAPTER\n");
  return 2;
}
