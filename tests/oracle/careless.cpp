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
// and, of waits (all of them keep the memory right):
//   late-event    the event that the next owner waits for is recorded at the allocation: it covers work that
//   the
//                 driver's free would not have waited for
//   late-stream   the same, with a wait of the stream that is launched on, before the launch
//   host          waits for the whole context at every allocation
//   stream-fence  context event at the free, a wait of the stream before each launch: right
//   own-wait      waits for the whole context right after a free, but makes a stream wait for that free
//                 first: right
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
  unsigned long number = 0;  // a later free's event covers all that an earlier one's does
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
  CUevent leans_on = nullptr;  // what every stream waits for before its next work
  unsigned long lean_number = 0;
  unsigned long frees = 0;
  bool has_just_freed = false;  // nothing was launched since
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

// Past the observer, which else takes our own calls for the application's.
CUresult context_wait(CUevent event) {
  return next<decltype(cuCtxWaitEvent)>("cuCtxWaitEvent")(nullptr, event);
}
CUresult stream_wait(CUstream stream, CUevent event) {
  return next<decltype(cuStreamWaitEvent)>("cuStreamWaitEvent")(stream, event, 0);
}

CUresult context_record(CUevent event) {
  return next<decltype(cuCtxRecordEvent)>("cuCtxRecordEvent")(nullptr, event);
}

CUevent new_event() {
  CUevent event = nullptr;
  cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  return event;
}

// Whether a kept block may go out again, after whatever this way of erring does about order.
bool may_hand_out(Cache& c, const Kept& kept) {
  if (errs_by("query")) return cuEventQuery(kept.freed) == CUDA_SUCCESS;
  if (errs_by("fence") || errs_by("legacy")) context_wait(kept.freed);
  if (errs_by("wrong-stream")) stream_wait(c.first_stream, kept.freed);
  if (errs_by("early-event") && c.before_launch != nullptr) context_wait(c.before_launch);
  if (errs_by("late-event") || errs_by("late-stream")) {
    const CUevent now = new_event();
    context_record(now);
    if (errs_by("late-event")) context_wait(now);
    if (errs_by("late-stream")) c.leans_on = now;
  }
  if (errs_by("stream-fence") && kept.number > c.lean_number) {
    c.leans_on = kept.freed;
    c.lean_number = kept.number;
  }
  if (errs_by("own-wait")) {
    if (!c.has_just_freed) return false;
    stream_wait(c.last_stream, kept.freed);
    next<decltype(cuCtxSynchronize)>("cuCtxSynchronize")();
  }
  if (errs_by("host")) next<decltype(cuCtxSynchronize)>("cuCtxSynchronize")();
  return true;
}

bool take_kept(Cache& c, const Bin& bin, CUdeviceptr* p) {
  auto& all = c.bins[bin];
  for (auto kept = all.begin(); kept != all.end(); ++kept) {
    if (!may_hand_out(c, *kept)) continue;
    *p = kept->p;
    if (kept->freed != nullptr && kept->freed != c.leans_on) cuEventDestroy_v2(kept->freed);
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
  Kept kept{p, nullptr, ++c.frees};
  if (errs_by("fence") || errs_by("query") || errs_by("stream-fence") || errs_by("own-wait"))
    context_record(kept.freed = new_event());
  if (errs_by("legacy")) cuEventRecord(kept.freed = new_event(), CU_STREAM_LEGACY);
  if (errs_by("wrong-stream")) cuEventRecord(kept.freed = new_event(), c.last_stream);
  c.has_just_freed = true;
  c.bins[known->second].push_back(kept);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  Cache& c = cache();
  {
    std::lock_guard<std::mutex> lock(c.mutex);
    c.has_just_freed = false;
    if (c.leans_on != nullptr) stream_wait(stream, c.leans_on);
  }
  return next<decltype(cuGraphLaunch)>("cuGraphLaunch")(graph, stream);
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
  Cache& c = cache();
  {
    std::lock_guard<std::mutex> lock(c.mutex);
    if (!c.any_launch) c.first_stream = stream;
    c.any_launch = true;
    c.last_stream = stream;
    c.has_just_freed = false;
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    cuStreamIsCapturing(stream, &capturing);
    if (c.leans_on != nullptr && capturing == CU_STREAM_CAPTURE_STATUS_NONE) stream_wait(stream, c.leans_on);
    if (errs_by("early-event") && capturing == CU_STREAM_CAPTURE_STATUS_NONE) {
      if (c.before_launch == nullptr) c.before_launch = new_event();
      context_record(c.before_launch);
    }
  }
  return next<decltype(cuLaunchKernel)>("cuLaunchKernel")(f, gx, gy, gz, bx, by, bz, shared, stream,
                                                          parameters, extra);
}

}  // extern "C"
