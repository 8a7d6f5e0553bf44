// Control for the torture on a real driver: a library under which no memory is used twice. Frees of plain
// memory do nothing, so they wait for nothing, and what is wrong all the same is not an allocator's fault.
// Memory of the driver's pools goes back as usual. Usage: LD_PRELOAD=libkeeps_all.so torture --most 400000 …
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

template <typename... Args>
CUresult release(const char* name, CUdeviceptr memory, Args... args) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (pooled.erase(memory) == 0) return CUDA_SUCCESS;
  }
  return forward(name, memory, args...);
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
  return release("cuMemFreeAsync", memory, stream);
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr memory, CUstream stream) {
  return release("cuMemFreeAsync_ptsz", memory, stream);
}
CUresult cuMemFree_v2(CUdeviceptr memory) { return release("cuMemFree_v2", memory); }
}
