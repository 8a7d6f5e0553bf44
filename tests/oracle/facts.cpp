// What is known of the real driver, asked of the one at hand: one chapter per argument. Says nothing when all
// answers are right, names each that is not. Runs on a GPU too, where the PTX gives the kernels.
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

const char kKernels[] =
#include "../victims/kernels.ptx.inc"
    ;

int wrong_answers = 0;

void expect(long long got, long long wanted, const char* what, int line) {
  if (got == wanted) return;
  ++wrong_answers;
  std::printf("facts: line %d: %s: got %lld, wanted %lld\n", line, what, got, wanted);
}
#define EXPECT(what, wanted) expect(static_cast<long long>(what), static_cast<long long>(wanted), #what, __LINE__)
#define MUST(call) EXPECT(call, CUDA_SUCCESS)

constexpr unsigned long long kLong = 2'000'000;

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

CUstream new_stream() {
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

CUevent new_event() {
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return event;
}

CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr p = 0;
  MUST(cuMemAlloc_v2(&p, bytes));
  return p;
}

void answers() {
  CUdeviceptr p = 0;
  EXPECT(cuMemAlloc_v2(&p, 16), CUDA_ERROR_NOT_INITIALIZED);
  MUST(cuInit(0));
  EXPECT(cuMemAlloc_v2(&p, 16), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT(cuMemFree_v2(0x1000), CUDA_ERROR_INVALID_CONTEXT);
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
  MUST(cuMemFreeAsync(p, stream));
  EXPECT(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
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
  EXPECT(big % (2 << 20), 0);
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

void order() {
  Device d;
  for (int i = 0; i < 10; ++i) {
    CUstream first = new_stream();
    CUevent event = new_event();
    CUdeviceptr p = allocate(1 << 20);
    MUST(d.launch_spin(first));
    d.launch_fill(first, p, 1 << 20, 9);
    MUST(cuCtxRecordEvent(d.context, event));
    MUST(cuCtxWaitEvent(d.context, event));
    CUstream later = new_stream();
    unsigned char byte = 0;
    MUST(cuMemcpyDtoHAsync_v2(&byte, p + 1000, 1, later));
    MUST(cuStreamSynchronize(later));
    EXPECT(byte, 9);
    EXPECT(cuEventQuery(event), CUDA_SUCCESS);
    MUST(cuMemFree_v2(p));
    MUST(cuEventDestroy_v2(event));
    MUST(cuStreamDestroy_v2(first));
    MUST(cuStreamDestroy_v2(later));
  }
}

// Begins a capture, makes the call, and says how the capture ended.
template <typename Call>
CUresult end_after(CUstreamCaptureMode mode, CUresult expected, Call&& call) {
  CUstream stream = new_stream();
  CUgraph graph = nullptr;
  MUST(cuStreamBeginCapture_v2(stream, mode));
  EXPECT(call(), expected);
  const CUresult ended = cuStreamEndCapture(stream, &graph);
  if (graph != nullptr) MUST(cuGraphDestroy(graph));
  MUST(cuStreamDestroy_v2(stream));
  return ended;
}

void capture() {
  Device d;
  CUstream other = new_stream();
  CUevent event = new_event();
  MUST(cuEventRecord(event, other));
  MUST(cuCtxSynchronize());
  constexpr CUresult kRefused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  constexpr CUresult kInvalid = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const auto modes = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                      CU_STREAM_CAPTURE_MODE_RELAXED};
  for (const CUstreamCaptureMode mode : modes) {
    const bool relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    const CUresult by_mode = relaxed ? CUDA_SUCCESS : kRefused;
    const CUresult end_by_mode = relaxed ? CUDA_SUCCESS : kInvalid;
    CUdeviceptr p = 0;
    CUdeviceptr held = allocate(64);
    size_t room = 0;
    EXPECT(end_after(mode, by_mode, [&] { return cuMemAlloc_v2(&p, 64); }), end_by_mode);
    EXPECT(end_after(mode, by_mode, [&] { return cuMemFree_v2(held); }), end_by_mode);
    EXPECT(end_after(mode, kRefused, [&] { return cuCtxRecordEvent(d.context, event); }), kInvalid);
    EXPECT(end_after(mode, kRefused, [] { return cuCtxSynchronize(); }), kInvalid);
    EXPECT(end_after(mode, by_mode, [&] { return cuEventQuery(event); }), end_by_mode);
    EXPECT(end_after(mode, CUDA_SUCCESS, [&] { return cuEventRecord(event, other); }), CUDA_SUCCESS);
    EXPECT(end_after(mode, CUDA_SUCCESS, [&] { return cuMemGetInfo_v2(&room, &room); }), CUDA_SUCCESS);
    MUST(cuCtxSynchronize());
  }
}

void proc_address() {
  Device d;
  void* found = nullptr;
  CUdriverProcAddressQueryResult status;
  MUST(cuGetProcAddress_v2("cuMemAlloc", &found, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  EXPECT(found == reinterpret_cast<void*>(&cuMemAlloc_v2), true);
  EXPECT(status, CU_GET_PROC_ADDRESS_SUCCESS);
  void* per_thread = nullptr;
  MUST(cuGetProcAddress_v2("cuMemAlloc", &per_thread, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
  EXPECT(found == per_thread, true);
  MUST(cuGetProcAddress_v2("cuLaunchKernel", &found, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  MUST(cuGetProcAddress_v2("cuLaunchKernel", &per_thread, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                           &status));
  EXPECT(found != per_thread, true);
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

std::string as_hex(const CUipcMemHandle& handle) {
  std::string text;
  char two[3];
  for (const char c : handle.reserved) {
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
    text += two;
  }
  return text;
}

// Runs this program again on a handle; its exit code is what the other process found there.
int first_byte_elsewhere(const CUipcMemHandle& handle) {
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "facts", "open", as_hex(handle).c_str(), nullptr);
    _exit(255);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

constexpr int kOpenFailed = 200;

int open_handle(const char* text) {
  CUipcMemHandle handle;
  for (int i = 0; i < CU_IPC_HANDLE_SIZE; ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(std::string(text + 2 * i, 2), nullptr, 16));
  }
  Device d;
  CUdeviceptr p = 0;
  const CUresult opened = cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (opened != CUDA_SUCCESS) return kOpenFailed + static_cast<int>(opened);
  unsigned char byte = 0;
  MUST(cuMemcpyDtoH_v2(&byte, p, 1));
  MUST(cuIpcCloseMemHandle(p));
  return byte;
}

void ipc() {
  Device d;
  CUdeviceptr first = allocate(8192);
  CUdeviceptr second = allocate(8192);
  CUdeviceptr large = allocate(4 << 20);
  MUST(cuMemsetD8_v2(first, 11, 8192));
  MUST(cuMemsetD8_v2(second, 22, 8192));
  MUST(cuMemsetD8_v2(large, 33, 4 << 20));
  MUST(cuCtxSynchronize());
  CUipcMemHandle handle;
  CUdeviceptr mine = 0;
  MUST(cuIpcGetMemHandle(&handle, second));
  EXPECT(first_byte_elsewhere(handle), 22);
  for (int i = 56; i < 64; ++i) EXPECT(handle.reserved[i], 0);
  CUipcMemHandle interior;
  MUST(cuIpcGetMemHandle(&interior, second + 100));
  EXPECT(std::memcmp(&handle, &interior, sizeof handle), 0);
  CUipcMemHandle tail = handle;
  std::memset(tail.reserved + 56, 0x5a, 8);
  EXPECT(first_byte_elsewhere(tail), 22);
  CUipcMemHandle masked = handle;
  for (int i = 0; i < 56; ++i) masked.reserved[i] = static_cast<char>(masked.reserved[i] ^ 0x5a);
  EXPECT(first_byte_elsewhere(masked), kOpenFailed + CUDA_ERROR_INVALID_VALUE);
  MUST(cuIpcGetMemHandle(&handle, large));
  EXPECT(first_byte_elsewhere(handle), 33);
  EXPECT(cuIpcOpenMemHandle_v2(&mine, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
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

struct Chapter {
  const char* name;
  void (*tell)();
};
constexpr Chapter kChapters[] = {{"answers", answers}, {"blocking", blocking}, {"order", order},
                                 {"capture", capture}, {"contexts", contexts}, {"proc_address", proc_address},
                                 {"ipc", ipc},         {"illegal", illegal}};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "open") == 0) return open_handle(argv[2]);
  for (const Chapter& chapter : kChapters) {
    if (argc != 2 || std::strcmp(argv[1], chapter.name) != 0) continue;
    chapter.tell();
    return wrong_answers == 0 ? 0 : 1;
  }
  std::fprintf(stderr, "usage: facts CHAPTER\n");
  return 2;
}
