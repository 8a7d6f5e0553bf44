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
// and, of waits across contexts:
//   all-contexts    context event at the free; before the hand-out its own context waits, and all others do
//   visit           context event at the free; before the hand-out its own context waits, and before a copy
//                   that names a block its stream waits for the block's old life: right
//   visit-now       the same, but before the copy all work of the block's context is waited for
//   visit-any       the same as visit, for the last free of all, whatever the copy names
//   refused-others  an allocation that the device refuses waits for all other contexts
//   refused-own     and one that waits for its own: right
#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

namespace {

struct Kept {
  CUdeviceptr p;
  CUevent freed;
  unsigned long number = 0;  // a later free's event covers all that an earlier one's does
};

// A bin is a context, a size, and whether the memory is managed.
using Bin = std::tuple<CUcontext, size_t, bool>;

struct Cache {
  std::mutex mutex;
  std::map<Bin, std::vector<Kept>> bins;
  std::map<CUdeviceptr, Bin> owned;
  std::map<CUdeviceptr, CUevent> old_lives;  // the free before, of blocks that were handed out again
  std::set<CUcontext> contexts;
  CUevent last_free = nullptr;
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
CUresult context_wait(CUevent event, CUcontext context = nullptr) {
  return next<decltype(cuCtxWaitEvent)>("cuCtxWaitEvent")(context, event);
}
CUresult stream_wait(CUstream stream, CUevent event) {
  return next<decltype(cuStreamWaitEvent)>("cuStreamWaitEvent")(stream, event, 0);
}

CUresult context_record(CUevent event, CUcontext context = nullptr) {
  return next<decltype(cuCtxRecordEvent)>("cuCtxRecordEvent")(context, event);
}

CUcontext present_context() {
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  return context;
}

CUresult synchronize() { return next<decltype(cuCtxSynchronize)>("cuCtxSynchronize")(); }

bool visits() { return errs_by("visit") || errs_by("visit-now") || errs_by("visit-any"); }

CUevent new_event() {
  CUevent event = nullptr;
  cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  return event;
}

// Whether a kept block may go out again, after whatever this way of erring does about order.
bool may_hand_out(Cache& c, const Kept& kept) {
  if (errs_by("query")) return cuEventQuery(kept.freed) == CUDA_SUCCESS;
  if (errs_by("fence") || errs_by("legacy") || errs_by("all-contexts") || visits()) context_wait(kept.freed);
  if (errs_by("all-contexts")) {
    for (const CUcontext context : c.contexts) {
      if (context != present_context()) context_wait(kept.freed, context);
    }
  }
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
    synchronize();
  }
  if (errs_by("host")) synchronize();
  return true;
}

bool take_kept(Cache& c, const Bin& bin, CUdeviceptr* p) {
  auto& all = c.bins[bin];
  for (auto kept = all.begin(); kept != all.end(); ++kept) {
    if (!may_hand_out(c, *kept)) continue;
    *p = kept->p;
    if (visits()) c.old_lives[*p] = kept->freed;
    if (kept->freed != nullptr && kept->freed != c.leans_on && !visits()) cuEventDestroy_v2(kept->freed);
    all.erase(kept);
    return true;
  }
  return false;
}

// Before a copy on this stream that names the block.
void before_copy(CUdeviceptr p, CUstream stream) {
  Cache& c = cache();
  std::lock_guard<std::mutex> lock(c.mutex);
  const auto known = c.owned.find(p);
  if (errs_by("visit-any") && c.last_free != nullptr) stream_wait(stream, c.last_free);
  if (known == c.owned.end() || c.old_lives.count(p) == 0) return;
  if (errs_by("visit")) stream_wait(stream, c.old_lives[p]);
  if (!errs_by("visit-now")) return;
  const CUcontext context = std::get<CUcontext>(known->second);
  cuCtxPushCurrent_v2(context);
  const CUevent now = new_event();
  context_record(now);
  cuCtxPopCurrent_v2(nullptr);
  stream_wait(stream, now);
}

// After the device has refused.
void wait_for_room(Cache& c) {
  if (errs_by("refused-own")) synchronize();
  if (!errs_by("refused-others")) return;
  for (const CUcontext context : c.contexts) {
    if (context == present_context()) continue;
    cuCtxPushCurrent_v2(context);
    synchronize();
    cuCtxPopCurrent_v2(nullptr);
  }
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
  const Bin bin(present_context(), bytes, false);
  if (take_kept(c, bin, p)) return CUDA_SUCCESS;
  const CUresult result = next<decltype(cuMemAlloc_v2)>("cuMemAlloc_v2")(p, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) wait_for_room(c);
  if (result == CUDA_SUCCESS) {
    c.owned[*p] = bin;
    c.last_given = *p;
    c.last_size = bytes;
  }
  return result;
}

CUresult cuMemAllocManaged(CUdeviceptr* p, size_t bytes, unsigned flags) {
  Cache& c = cache();
  std::lock_guard<std::mutex> lock(c.mutex);
  const Bin bin(present_context(), bytes, true);
  if (take_kept(c, bin, p)) return CUDA_SUCCESS;
  const CUresult result = next<decltype(cuMemAllocManaged)>("cuMemAllocManaged")(p, bytes, flags);
  if (result == CUDA_SUCCESS) c.owned[*p] = bin;
  return result;
}

CUresult cuMemFree_v2(CUdeviceptr p) {
  Cache& c = cache();
  std::lock_guard<std::mutex> lock(c.mutex);
  const auto known = c.owned.find(p);
  if (known == c.owned.end()) return next<decltype(cuMemFree_v2)>("cuMemFree_v2")(p);
  Kept kept{p, nullptr, ++c.frees};
  if (errs_by("fence") || errs_by("query") || errs_by("stream-fence") || errs_by("own-wait") ||
      errs_by("all-contexts") || visits())
    context_record(kept.freed = new_event());
  c.last_free = kept.freed;
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
    c.contexts.insert(present_context());
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

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t bytes, CUstream stream) {
  before_copy(from, stream);
  return next<decltype(cuMemcpyPeerAsync)>("cuMemcpyPeerAsync")(to, to_context, from, from_context, bytes,
                                                                stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  before_copy(from, stream);
  return next<decltype(cuMemcpyDtoDAsync_v2)>("cuMemcpyDtoDAsync_v2")(to, from, bytes, stream);
}

}  // extern "C"
