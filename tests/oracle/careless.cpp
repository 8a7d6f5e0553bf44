// A cache to put between the observer and the simulated driver. CARELESS says how it errs, to prove that the
// oracle sees it; "fence" and "query" do it right, to prove that the oracle does not cry wolf.
//   at-once       freed memory is handed out again as it is
//   wrong-stream  waits for the freed memory's work, but on another stream than the one that will use it
//   early-event   waits for an event that was recorded before the last launch
//   legacy        takes an event of the legacy stream as if it covered non-blocking streams
//   twice         hands out memory that somebody still holds
//   fence         context event at the free, context wait before the hand-out: right for the device, not for
//                 managed memory, which the host may touch at once
//   query         context event at the free, handed out only once it is done
#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace {

struct Kept {
  CUdeviceptr p;
  CUevent freed;
};

// Managed memory is kept apart: a bin is a size and whether it is managed.
using Bin = std::pair<size_t, bool>;

struct Cache {
  std::mutex mutex;
  std::map<Bin, std::vector<Kept>> bins;
  std::map<CUdeviceptr, Bin> owned;
  CUdeviceptr last_given = 0;
  size_t last_size = 0;
  CUstream first_stream = nullptr;
  CUstream last_stream = nullptr;
  bool any_launch = false;
  CUevent before_launch = nullptr;
};

Cache& cache() {
  static Cache* const kept = new Cache;
  return *kept;
}

bool errs_by(const char* way) {
  static const char* const chosen = std::getenv("CARELESS");
  return chosen != nullptr && std::strcmp(chosen, way) == 0;
}

template <typename F>
F* next(const char* symbol) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, symbol));
}

CUevent new_event() {
  CUevent event = nullptr;
  cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  return event;
}

// Whether a kept block may go out again, after whatever this way of erring does about order.
bool may_hand_out(Cache& c, const Kept& kept) {
  if (errs_by("query")) return cuEventQuery(kept.freed) == CUDA_SUCCESS;
  if (errs_by("fence") || errs_by("legacy")) cuCtxWaitEvent(nullptr, kept.freed);
  if (errs_by("wrong-stream")) cuStreamWaitEvent(c.first_stream, kept.freed, 0);
  if (errs_by("early-event") && c.before_launch != nullptr) cuCtxWaitEvent(nullptr, c.before_launch);
  return true;
}

bool take_kept(Cache& c, const Bin& bin, CUdeviceptr* p) {
  auto& all = c.bins[bin];
  for (auto kept = all.begin(); kept != all.end(); ++kept) {
    if (!may_hand_out(c, *kept)) continue;
    *p = kept->p;
    if (kept->freed != nullptr) cuEventDestroy_v2(kept->freed);
    all.erase(kept);
    return true;
  }
  return false;
}

}  // namespace

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t bytes) {
  Cache& c = cache();
  std::lock_guard<std::mutex> lock(c.mutex);
  if (errs_by("twice") && c.last_given != 0 && bytes <= c.last_size) {
    *p = c.last_given;
    c.last_given = 0;
    return CUDA_SUCCESS;
  }
  if (take_kept(c, Bin(bytes, false), p)) return CUDA_SUCCESS;
  const CUresult result = next<decltype(cuMemAlloc_v2)>("cuMemAlloc_v2")(p, bytes);
  if (result == CUDA_SUCCESS) {
    c.owned[*p] = Bin(bytes, false);
    c.last_given = *p;
    c.last_size = bytes;
  }
  return result;
}

CUresult cuMemAllocManaged(CUdeviceptr* p, size_t bytes, unsigned flags) {
  Cache& c = cache();
  std::lock_guard<std::mutex> lock(c.mutex);
  if (take_kept(c, Bin(bytes, true), p)) return CUDA_SUCCESS;
  const CUresult result = next<decltype(cuMemAllocManaged)>("cuMemAllocManaged")(p, bytes, flags);
  if (result == CUDA_SUCCESS) c.owned[*p] = Bin(bytes, true);
  return result;
}

CUresult cuMemFree_v2(CUdeviceptr p) {
  Cache& c = cache();
  std::lock_guard<std::mutex> lock(c.mutex);
  const auto known = c.owned.find(p);
  if (known == c.owned.end()) return next<decltype(cuMemFree_v2)>("cuMemFree_v2")(p);
  Kept kept{p, nullptr};
  if (errs_by("fence") || errs_by("query")) cuCtxRecordEvent(nullptr, kept.freed = new_event());
  if (errs_by("legacy")) cuEventRecord(kept.freed = new_event(), CU_STREAM_LEGACY);
  if (errs_by("wrong-stream")) cuEventRecord(kept.freed = new_event(), c.last_stream);
  c.bins[known->second].push_back(kept);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
  Cache& c = cache();
  {
    std::lock_guard<std::mutex> lock(c.mutex);
    if (!c.any_launch) c.first_stream = stream;
    c.any_launch = true;
    c.last_stream = stream;
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    cuStreamIsCapturing(stream, &capturing);
    if (errs_by("early-event") && capturing == CU_STREAM_CAPTURE_STATUS_NONE) {
      if (c.before_launch == nullptr) c.before_launch = new_event();
      cuCtxRecordEvent(nullptr, c.before_launch);
    }
  }
  return next<decltype(cuLaunchKernel)>("cuLaunchKernel")(f, gx, gy, gz, bx, by, bz, shared, stream,
                                                          parameters, extra);
}

}  // extern "C"
