// Programs with mapped memory for the simulated driver's own findings: one per argument. None may be run on a
// GPU.
//   calls      maps two chunks and takes them back; says what each call answered
//   at-once    unmaps while a kernel is queued that writes there
//   ordered    the same, when another stream waits for that kernel: the host has not seen its end
//   remapped   the same, and something else is mapped there at once
//   host       the same, with a chunk in host memory
//   fails      the same, with a kernel that cannot have begun; says what became of it
//   seen       asks until the kernel's event is done, then unmaps
//   waited     waits for the stream, then unmaps
//   apart      unmaps a chunk beside the one that a kernel writes to
//   broken     unmaps after the context has failed
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr size_t kChunk = 2 << 20;

void must(CUresult result, int line) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "mapped: line %d: error %d\n", line, static_cast<int>(result));
  std::_Exit(2);
}
#define MUST(call) must((call), __LINE__)
#define TELL(call, arguments) std::printf(#call " %d\n", static_cast<int>(call arguments))

const CUmemAllocationProp kOnDevice = {
    CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, nullptr, {}};
const CUmemAllocationProp kOnHost = {
    CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE, {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, nullptr, {}};
const CUmemAccessDesc kForDevice = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

void map_at(CUdeviceptr p, const CUmemAllocationProp& properties) {
  CUmemGenericAllocationHandle handle = 0;
  MUST(cuMemCreate(&handle, kChunk, &properties, 0));
  MUST(cuMemMap(p, kChunk, 0, handle, 0));
  MUST(cuMemRelease(handle));
  MUST(cuMemSetAccess(p, kChunk, &kForDevice, 1));
}

void tell_calls() {
  CUdeviceptr p = 0;
  CUmemGenericAllocationHandle one = 0, two = 0;
  TELL(cuMemAddressReserve, (&p, 2 * kChunk, 0, 0, 0));
  TELL(cuMemCreate, (&one, kChunk, &kOnDevice, 0));
  TELL(cuMemCreate, (&two, kChunk, &kOnHost, 0));
  TELL(cuMemMap, (p, kChunk, 0, one, 0));
  TELL(cuMemMap, (p + kChunk, kChunk, 0, two, 0));
  TELL(cuMemSetAccess, (p, 2 * kChunk, &kForDevice, 1));
  TELL(cuMemUnmap, (p, 2 * kChunk));
  TELL(cuMemRelease, (one));
  TELL(cuMemRelease, (two));
  TELL(cuMemAddressFree, (p, 2 * kChunk));
}

}  // namespace

int main(int, char** words) {
  const std::string how = words[1];
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  if (how == "calls") {
    tell_calls();
    return 0;
  }
  CUstream stream = nullptr, other = nullptr;
  CUevent done = nullptr;
  CUmodule module = nullptr;
  CUfunction fill = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  MUST(cuModuleLoadData(&module, ""));
  MUST(cuModuleGetFunction(&fill, module, "fill"));
  CUdeviceptr p = 0;
  MUST(cuMemAddressReserve(&p, 2 * kChunk, 0, 0, 0));
  map_at(p, how == "host" ? kOnHost : kOnDevice);
  map_at(p + kChunk, kOnDevice);
  CUdeviceptr word = 0;
  if (how == "fails") {
    MUST(cuMemAlloc(&word, sizeof(unsigned)));
    MUST(cuMemsetD32(word, 0, 1));
    MUST(cuCtxSynchronize());
    MUST(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  CUdeviceptr target = how == "apart" ? p + kChunk : p;
  size_t bytes = 64;
  unsigned value = 3;
  void* parameters[] = {&target, &bytes, &value};
  MUST(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  if (how == "broken") {
    target = 0x1000;
    MUST(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
    while (cuStreamQuery(stream) != CUDA_ERROR_ILLEGAL_ADDRESS) {
    }
  }
  if (how == "ordered" || how == "seen") MUST(cuEventRecord(done, stream));
  if (how == "ordered") MUST(cuStreamWaitEvent(other, done, 0));
  while (how == "seen" && cuEventQuery(done) == CUDA_ERROR_NOT_READY) {
  }
  if (how == "waited") MUST(cuStreamSynchronize(stream));
  MUST(cuMemUnmap(p, kChunk));
  if (how == "fails") {
    MUST(cuStreamWriteValue32(other, word, 1, 0));
    TELL(cuStreamSynchronize, (stream));
  }
  if (how == "remapped") map_at(p, kOnDevice);
  return 0;
}
