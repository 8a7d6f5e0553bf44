// Chapters about calls beside work that is not done: which of them stand, in which thread and context, and
// which go on. That a call stands can only be seen by waiting a moment: one that is slow passes for standing,
// and never the reverse.
#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <thread>

#include "facts.hpp"

namespace facts {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAMoment{100};
constexpr milliseconds kLong{20'000};
constexpr size_t kMiB = 1 << 20;
constexpr int kMoreThanFull = 1100;

// Work of a stream that is not done before the host says so. pre: the stream's context is current.
class Held {
 public:
  explicit Held(CUstream stream) {
    void* host = nullptr;
    MUST(cuMemHostAlloc(&host, sizeof(unsigned), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    word_ = static_cast<unsigned*>(host);
    __atomic_store_n(word_, 0, __ATOMIC_SEQ_CST);
    CUdeviceptr address = 0;
    MUST(cuMemHostGetDevicePointer_v2(&address, host, 0));
    CUmodule module = nullptr;
    CUfunction await = nullptr;
    MUST(cuModuleLoadData(&module, kKernels));
    MUST(cuModuleGetFunction(&await, module, "await"));
    unsigned value = 1;
    void* parameters[] = {&address, &value};
    MUST(cuLaunchKernel(await, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }
  void release() { __atomic_store_n(word_, 1, __ATOMIC_SEQ_CST); }

 private:
  unsigned* word_ = nullptr;
};

// A call made by a thread of its own.
class Call {
 public:
  Call(CUcontext context, std::function<CUresult()> make)
      : thread_([this, context, make = std::move(make)] {
          result_ = cuCtxSetCurrent(context);
          if (result_ == CUDA_SUCCESS) result_ = make();
          returned_ = true;
        }) {}
  ~Call() { thread_.join(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool stands() const {
    std::this_thread::sleep_for(kAMoment);
    return !returned_;
  }
  bool goes_on() const {
    for (milliseconds waited{0}; !returned_ && waited < kLong; ++waited)
      std::this_thread::sleep_for(milliseconds(1));
    return returned_;
  }
  CUresult result() const {
    while (!returned_) std::this_thread::sleep_for(milliseconds(1));
    return result_;
  }

 private:
  std::atomic<bool> returned_{false};
  CUresult result_ = CUDA_ERROR_UNKNOWN;
  std::thread thread_;
};

// A second context of the device; the current one stays.
CUcontext second_context(const Device& d) {
  CUcontext context = nullptr;
  MUST(cuCtxCreate_v4(&context, nullptr, 0, d.device));
  MUST(cuCtxSetCurrent(d.context));
  return context;
}

template <typename Make>
auto inside(CUcontext context, const Device& d, Make&& make) {
  MUST(cuCtxSetCurrent(context));
  const auto made = make();
  MUST(cuCtxSetCurrent(d.context));
  return made;
}

// What the driver loads or makes at its first use must not come while something waits for the host.
void warm_up(Device& d) {
  const CUstream stream = new_stream();
  CUdeviceptr p = allocate(4096);
  d.launch_fill(stream, p, 4, 1);
  MUST(d.launch_spin(stream));
  MUST(cuMemsetD8Async(p, 0, 64, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemFreeAsync(p, stream));
  MUST(cuMemAllocAsync(&p, 4096, stream));
  MUST(cuMemFreeAsync(p, stream));
  MUST(cuCtxSynchronize());
}

size_t free_now() {
  size_t room = 0;
  MUST(cuMemGetInfo_v2(&room, nullptr));
  return room;
}

}  // namespace

// A free waits for the context that owns the memory, whichever is current, and for no other. While it waits,
// other threads' calls in that context stand; those in another context go on.
void owners() {
  Device d;
  warm_up(d);
  const CUcontext b = second_context(d);
  const CUstream stream = new_stream();
  const CUstream other = new_stream();
  const CUstream stream_of_b = inside(b, d, [] { return new_stream(); });
  const CUdeviceptr p = allocate(4096), left = allocate(4096);
  const CUdeviceptr of_b = inside(b, d, [] { return allocate(4096); });
  const CUdeviceptr second_of_b = inside(b, d, [] { return allocate(4096); });
  const CUevent event = new_event();
  MUST(inside(b, d, [&] { return cuMemsetD8Async(second_of_b, 0, 64, stream_of_b); }));
  MUST(inside(b, d, [] { return cuCtxSynchronize(); }));
  Held held(stream);
  MUST(cuMemFree_v2(of_b));
  EXPECT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  {
    const Call free_from_b(b, [p] { return cuMemFree_v2(p); });
    EXPECT(free_from_b.stands(), true);
    std::list<Call> calls;
    CUdeviceptr q = 0;
    if (!simulated()) {
      calls.emplace_back(d.context, [&] { return d.launch_spin(other); });
      calls.emplace_back(d.context, [&] { return cuEventRecord(event, other); });
      calls.emplace_back(d.context, [&] { return cuMemsetD8Async(left, 0, 4096, other); });
      calls.emplace_back(d.context, [&] { return cuMemAlloc_v2(&q, 4096); });
      for (const Call& call : calls) EXPECT(call.stands(), true);
    }
    const Call beside(b, [=] { return cuMemsetD8Async(second_of_b, 0, 4096, stream_of_b); });
    EXPECT(beside.goes_on(), true);
    held.release();
    MUST(free_from_b.result());
    for (const Call& call : calls) MUST(call.result());
  }
  MUST(cuCtxSynchronize());
}

// While a thread stands in a launch because the stream's queue is full.
void full_queue() {
  Device d;
  warm_up(d);
  const CUcontext b = second_context(d);
  const CUstream full = new_stream(), other = new_stream(), idle = new_stream(), captured = new_stream();
  const CUstream stream_of_b = inside(b, d, [] { return new_stream(); });
  const CUevent event = new_event(), done = new_event(), next = new_event(),
                event_of_b = inside(b, d, [] { return new_event(); });
  MUST(cuEventRecord(done, idle));
  MUST(cuCtxSynchronize());
  const CUdeviceptr scratch = allocate(4096);
  CUdeviceptr p = 0, q = 0, of_b = 0;
  size_t room = 0;
  CUevent made = nullptr;
  CUstream new_one = nullptr;
  CUgraph graph = nullptr;
  Held held(full);
  std::list<Call> standing;
  {
    const Call launches(d.context, [&] {
      for (int i = 0; i < kMoreThanFull; ++i) d.launch_fill(full, scratch, 4, 1);
      return CUDA_SUCCESS;
    });
    // Until it stands, most likely.
    std::this_thread::sleep_for(5 * kAMoment);
    const std::function<CUresult()> go_on[] = {
        [&] { return d.launch_spin(other); },
        [&] { return cuEventRecord(event, other); },
        [&] { return cuStreamWaitEvent(idle, event, 0); },
        [&] { return cuCtxRecordEvent(d.context, next); },
        [&] { return cuEventQuery(done); },
        [&] { return cuStreamSynchronize(other); },
        [&] { return cuStreamQuery(other); },
        [&] { return cuMemAllocAsync(&p, 4096, other); },
        [&] { return cuMemFreeAsync(p, other); },
        [&] { return cuMemGetInfo_v2(&room, nullptr); },
    };
    int number = 0;
    for (const auto& make : go_on) {
      const Call call(d.context, make);
      EXPECT(call.goes_on() ? 0 : number + 1, 0);
      if (!call.goes_on()) held.release();
      MUST(call.result());
      ++number;
    }
    const std::function<CUresult()> in_b[] = {
        [&] { return cuMemAlloc_v2(&of_b, 4096); },
        [&] { return cuMemFree_v2(of_b); },
        [&] { return cuEventCreate(&made, CU_EVENT_DISABLE_TIMING); },
        [&] { return cuCtxRecordEvent(b, event_of_b); },
        [&] { return cuCtxWaitEvent(b, event_of_b); },
        [&] { return cuCtxSynchronize(); },
        [&] { return cuStreamBeginCapture_v2(stream_of_b, CU_STREAM_CAPTURE_MODE_RELAXED); },
    };
    for (const auto& make : in_b) {
      const Call call(b, make);
      EXPECT(call.goes_on() ? 0 : number + 1, 0);
      if (!call.goes_on()) held.release();
      MUST(call.result());
      ++number;
    }
    if (!simulated()) EXPECT(launches.stands(), true);
    standing.emplace_back(d.context, [&] {
      const CUresult answer = cuStreamQuery(full);
      return answer == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : answer;
    });
    standing.emplace_back(d.context, [&] { return cuMemAlloc_v2(&q, 4096); });
    standing.emplace_back(d.context, [&] { return cuEventCreate(&made, CU_EVENT_DISABLE_TIMING); });
    standing.emplace_back(d.context, [&] { return cuStreamCreate(&new_one, CU_STREAM_NON_BLOCKING); });
    standing.emplace_back(d.context, [&] { return cuCtxWaitEvent(d.context, done); });
    standing.emplace_back(d.context,
                          [&] { return cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED); });
    if (!simulated()) {
      for (const Call& call : standing) EXPECT(call.stands(), true);
    }
    held.release();
    MUST(launches.result());
  }
  // What they answer is not asked: the capture and the wait of its context may end each other.
  for (const Call& call : standing) call.result();
  cuStreamEndCapture(captured, &graph);
  MUST(inside(b, d, [&] { return cuStreamEndCapture(stream_of_b, &graph); }));
  MUST(cuCtxSynchronize());
}

// A stream-ordered free of memory that cuMemAlloc made.
void ordered_free() {
  Device d;
  warm_up(d);
  const CUstream stream = new_stream(), idle = new_stream();
  const CUevent done = new_event();
  const CUdeviceptr p = allocate(64 * kMiB), q = allocate(64 * kMiB);
  Held held(stream);
  MUST(cuEventRecord(done, stream));
  // On a stream that has work: at once, and the memory answers until the stream comes to the free.
  const size_t before = free_now();
  MUST(cuMemFreeAsync(p, stream));
  EXPECT(cuEventQuery(done), CUDA_ERROR_NOT_READY);
  CUdeviceptr base = 0;
  size_t size = 0;
  MUST(cuMemGetAddressRange_v2(&base, &size, p + 5));
  EXPECT(size, 64 * kMiB);
  MUST(cuMemsetD8Async(p, 1, 64, idle));
  MUST(cuStreamSynchronize(idle));
  GUESS(free_now() - before, 0);
  // On a stream without work: the memory is the device's after a wait for that stream, whatever others do.
  MUST(cuMemFreeAsync(q, idle));
  MUST(cuStreamSynchronize(idle));
  EXPECT(cuEventQuery(done), CUDA_ERROR_NOT_READY);
  GUESS(free_now() - before, 64 * kMiB);
  held.release();
  MUST(cuEventSynchronize(done));
  MUST(cuStreamSynchronize(stream));
  GUESS(free_now() - before, 128 * kMiB);
}

namespace {

// How a capture of this thread ends after a call of another one.
CUresult end_after_other(CUstreamCaptureMode mode, CUcontext context, bool relaxed,
                         const std::function<CUresult()>& make) {
  const CUstream stream = new_stream();
  CUgraph graph = nullptr;
  MUST(cuStreamBeginCapture_v2(stream, mode));
  {
    const Call call(context, [&] {
      CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_RELAXED;
      if (relaxed) MUST(cuThreadExchangeStreamCaptureMode(&own));
      make();
      return CUDA_SUCCESS;
    });
    MUST(call.result());
  }
  const CUresult ended = cuStreamEndCapture(stream, &graph);
  if (graph != nullptr) MUST(cuGraphDestroy(graph));
  MUST(cuStreamDestroy_v2(stream));
  return ended;
}

}  // namespace

// What a call of another thread does to a capture. Calls about a whole context end the captures of that
// context and of no other; other calls end global captures alone, and none from a thread whose mode is
// relaxed.
void capture_threads() {
  Device d;
  const CUcontext b = second_context(d);
  const CUstream other = new_stream();
  const CUevent event = new_event(), made_of_b = inside(b, d, [] { return new_event(); });
  MUST(cuEventRecord(event, other));
  MUST(cuCtxSynchronize());
  constexpr CUresult kInvalid = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    const CUresult if_global = mode == CU_STREAM_CAPTURE_MODE_GLOBAL ? kInvalid : CUDA_SUCCESS;
    for (const bool relaxed : {false, true}) {
      const auto end = [&](CUcontext context, const std::function<CUresult()>& make) {
        return end_after_other(mode, context, relaxed, make);
      };
      EXPECT(end(d.context, [&] { return cuCtxRecordEvent(d.context, event); }), kInvalid);
      EXPECT(end(d.context, [&] { return cuCtxWaitEvent(d.context, event); }), kInvalid);
      EXPECT(end(d.context, [] { return cuCtxSynchronize(); }), kInvalid);
      EXPECT(end(b, [&] { return cuCtxRecordEvent(b, made_of_b); }), CUDA_SUCCESS);
      EXPECT(end(b, [&] { return cuCtxWaitEvent(b, made_of_b); }), CUDA_SUCCESS);
      EXPECT(end(b, [] { return cuCtxSynchronize(); }), CUDA_SUCCESS);
      const CUresult by_mode = relaxed ? CUDA_SUCCESS : if_global;
      CUdeviceptr p = 0;
      const CUdeviceptr held = allocate(64), freed_in_order = allocate(64);
      EXPECT(end(d.context, [&] { return cuMemAlloc_v2(&p, 64); }), by_mode);
      EXPECT(end(d.context, [&] { return cuMemFree_v2(held); }), by_mode);
      EXPECT(end(d.context, [&] { return cuMemFreeAsync(freed_in_order, other); }), by_mode);
      EXPECT(end(d.context, [&] { return cuEventQuery(event); }), by_mode);
      EXPECT(end(d.context, [&] { return cuStreamSynchronize(other); }), by_mode);
      EXPECT(end(d.context, [&] { return cuEventRecord(event, other); }), CUDA_SUCCESS);
      CUmemGenericAllocationHandle chunk = 0;
      CUmemAllocationProp where = {};
      where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      where.location.id = d.device;
      EXPECT(end(d.context, [&] { return cuMemCreate(&chunk, 2 * kMiB, &where, 0); }), CUDA_SUCCESS);
      EXPECT(end(d.context, [&] { return cuMemRelease(chunk); }), CUDA_SUCCESS);
      MUST(cuCtxSynchronize());
    }
  }
}

// Copies without a stream between the memories of two contexts: ordered as work of both legacy streams.
void peer_copies() {
  Device d;
  warm_up(d);
  const CUcontext b = second_context(d);
  const CUstream blocking = new_stream(CU_STREAM_DEFAULT), alone = new_stream();
  const CUdeviceptr p = allocate(64);
  const CUdeviceptr of_b = inside(b, d, [] { return allocate(64); });
  unsigned char byte = 0;
  MUST(cuMemcpyPeer(of_b, b, p, d.context, 64));
  MUST(inside(b, d, [&] { return cuMemcpyDtoH_v2(&byte, of_b, 1); }));
  for (const bool waits : {true, false}) {
    const CUstream stream = waits ? blocking : alone;
    MUST(cuMemsetD8_v2(p, 1, 64));
    MUST(cuCtxSynchronize());
    Held held(stream);
    MUST(cuMemsetD8Async(p, 9, 64, stream));
    MUST(cuMemcpyPeer(of_b, b, p, d.context, 64));
    // It returns at once; a blocking stream holds it back until its work is done, another does not.
    EXPECT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    if (!waits) MUST(inside(b, d, [&] { return cuMemcpyDtoH_v2(&byte, of_b, 1); }));
    held.release();
    if (waits) {
      MUST(cuCtxSynchronize());
      MUST(inside(b, d, [&] { return cuMemcpyDtoH_v2(&byte, of_b, 1); }));
    }
    EXPECT(byte, waits ? 9 : 1);
    MUST(cuCtxSynchronize());
  }
}

namespace {

// One kernel lets its dependents start at once, runs on for a while and then writes; the other reads.
const char kEarly[] = R"(
.version 7.8
.target sm_90
.address_size 64
.visible .entry early(.param .u64 word, .param .u64 ns)
{
  .reg .pred %p;
  .reg .b32 %r;
  .reg .b64 %word, %ns, %begin, %now;
  griddepcontrol.launch_dependents;
  ld.param.u64 %word, [word];
  ld.param.u64 %ns, [ns];
  mov.u64 %begin, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %p, %now, %ns;
  @%p bra again;
  mov.u32 %r, 1;
  st.volatile.global.u32 [%word], %r;
  ret;
}
.visible .entry look(.param .u64 from, .param .u64 to)
{
  .reg .b32 %r;
  .reg .b64 %from, %to;
  ld.param.u64 %from, [from];
  ld.param.u64 %to, [to];
  ld.volatile.global.u32 %r, [%from];
  st.volatile.global.u32 [%to], %r;
  ret;
}
)";

}  // namespace

// A programmatic launch jumps over waits that lead back to its own stream, but not over one of the context.
void programmatic() {
  Device d;
  int major = 0;
  MUST(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d.device));
  if (simulated() || major < 9) return;
  CUmodule module = nullptr;
  CUfunction early = nullptr, look = nullptr;
  MUST(cuModuleLoadData(&module, kEarly));
  MUST(cuModuleGetFunction(&early, module, "early"));
  MUST(cuModuleGetFunction(&look, module, "look"));
  const CUstream stream = new_stream(), other = new_stream();
  const CUevent event = new_event(), second = new_event();
  CUdeviceptr words = allocate(8), seen = words + 4;
  const auto seen_after = [&](const std::function<void()>& order, bool overlaps) {
    MUST(cuMemsetD32_v2(words, 0, 2));
    MUST(cuCtxSynchronize());
    unsigned long long ns = 60'000'000;
    void* parameters[] = {&words, &ns};
    MUST(cuLaunchKernel(early, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
    order();
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = &attribute;
    config.numAttrs = overlaps ? 1 : 0;
    void* both[] = {&words, &seen};
    MUST(cuLaunchKernelEx(&config, look, both, nullptr));
    MUST(cuCtxSynchronize());
    unsigned word = 7;
    MUST(cuMemcpyDtoH_v2(&word, seen, sizeof word));
    return word;
  };
  EXPECT(seen_after([] {}, false), 1);
  EXPECT(seen_after([] {}, true), 0);
  EXPECT(seen_after(
             [&] {
               MUST(cuEventRecord(event, stream));
               MUST(cuStreamWaitEvent(stream, event, 0));
             },
             true),
         0);
  EXPECT(seen_after(
             [&] {
               MUST(cuCtxRecordEvent(d.context, event));
               MUST(cuStreamWaitEvent(stream, event, 0));
             },
             true),
         0);
  EXPECT(seen_after(
             [&] {
               MUST(cuEventRecord(event, stream));
               MUST(cuStreamWaitEvent(other, event, 0));
               MUST(cuEventRecord(second, other));
               MUST(cuStreamWaitEvent(stream, second, 0));
             },
             true),
         0);
  EXPECT(seen_after(
             [&] {
               MUST(cuCtxRecordEvent(d.context, event));
               MUST(cuCtxWaitEvent(d.context, event));
             },
             true),
         1);
}

// Parts of a device: their memory is the primary context's, whose free and events cover their work.
void green() {
  Device d;
  CUdevResource all = {}, part = {};
  unsigned count = 1;
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green_context = nullptr;
  CUcontext own = nullptr;
  MUST(cuDeviceGetDevResource(d.device, &all, CU_DEV_RESOURCE_TYPE_SM));
  if (simulated())
    part = all;  // it has one part, the whole
  else
    MUST(cuDevSmResourceSplitByCount(&part, &count, &all, nullptr, 0, 16));
  MUST(cuDevResourceGenerateDesc(&description, &part, 1));
  MUST(cuGreenCtxCreate(&green_context, description, d.device, CU_GREEN_CTX_DEFAULT_STREAM));
  MUST(cuCtxFromGreenCtx(&own, green_context));
  const CUstream stream = inside(own, d, [] { return new_stream(); });
  const CUdeviceptr p = inside(own, d, [] { return allocate(4096); });
  CUcontext owner = nullptr;
  MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p));
  EXPECT(owner == d.context, true);
  const CUevent event = new_event();
  const CUdeviceptr q = allocate(4096);
  MUST(cuCtxSetCurrent(own));
  Held held(stream);
  MUST(cuCtxSetCurrent(d.context));
  MUST(cuCtxRecordEvent(d.context, event));
  EXPECT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  {
    const Call frees(d.context, [q] { return cuMemFree_v2(q); });
    EXPECT(frees.stands(), true);
    held.release();
    MUST(frees.result());
  }
  EXPECT(cuEventQuery(event), CUDA_SUCCESS);
}

}  // namespace facts
