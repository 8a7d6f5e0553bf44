// Control for the torture on a real driver: a library under which no memory is used twice. Frees of plain
// memory give nothing back and wait for nothing, so what is wrong all the same is not an allocator's fault.
// Where they are in the order of a stream they record an event there, as cupool does. Memory of the driver's
// pools goes back as usual. For one context. Usage: LD_PRELOAD=libkeeps_all.so torture --most 400000 …
#include <cuda.h>
#include <dlfcn.h>

#include <mutex>
#include <unordered_set>

#undef cuMemAllocAsync
#undef cuMemFree
#undef cuMemFreeAsync
#undef cuMemFree_v2

namespace {

std::mutex mutex;
std::unordered_set<CUdeviceptr> pooled;

template <typename... Args>
CUresult forward(const char* name, Args... args) {
  return reinterpret_cast<CUresult (*)(Args...)>(dlsym(RTLD_NEXT, name))(args...);
}

CUresult allocate(const char* name, CUdeviceptr* out, size_t bytes, CUstream stream) {
  const CUresult result = forward(name, out, bytes, stream);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard<std::mutex> lock(mutex);
  pooled.insert(*out);
  return CUDA_SUCCESS;
}

bool take_pooled(CUdeviceptr memory) {
  const std::lock_guard<std::mutex> lock(mutex);
  return pooled.erase(memory) != 0;
}

CUevent event_of_this_thread() {
  thread_local CUevent event = nullptr;
  if (event == nullptr) cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  return event;
}

CUresult release_on(const char* name, const char* record, CUdeviceptr memory, CUstream stream) {
  if (take_pooled(memory)) return forward(name, memory, stream);
  return forward(record, event_of_this_thread(), stream);
}

}  // namespace

extern "C" {
CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return allocate("cuMemAllocAsync", out, bytes, stream);
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return allocate("cuMemAllocAsync_ptsz", out, bytes, stream);
}
CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream stream) {
  return release_on("cuMemFreeAsync", "cuEventRecord", memory, stream);
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr memory, CUstream stream) {
  return release_on("cuMemFreeAsync_ptsz", "cuEventRecord_ptsz", memory, stream);
}
CUresult cuMemFree_v2(CUdeviceptr memory) {
  return take_pooled(memory) ? forward("cuMemFree_v2", memory) : CUDA_SUCCESS;
}
}
