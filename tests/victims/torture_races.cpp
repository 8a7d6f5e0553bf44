// Victim: short programs, each valid, each the one case that a rule of order/ is there for. The oracle
// judges: what runs when does not matter, only what is ordered. Usage: torture_races
// streams|destroyed|waited|older|both|renamed|moved|given_back|unused|threads|wait|ordered|others|peers|graphs
// [ROUNDS of graphs]
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "linked_api.hpp"
#include "victim.hpp"

namespace {

// Too large for a thread to keep to itself, and a segment of its own: what is freed is what is given next.
constexpr size_t kBytes = size_t{20} << 20;

CUstream make_stream() {
  CUstream stream = nullptr;
  VICTIM_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

// Memory is used on one stream, freed with that work queued, taken again and used on another.
void streams(victim::Device& device) {
  CUstream const one = make_stream();
  CUstream const other = make_stream();
  CUdeviceptr p = device.alloc(kBytes);
  for (unsigned value = 1; value < 5; ++value) {
    device.spin(30000, one);
    device.fill(p, kBytes, value, one);
    device.free(p);
    p = device.alloc(kBytes);
    device.fill(p, kBytes, 100 + value, other);
    device.check(p, kBytes, 100 + value, other);
    device.free(p);
    p = device.alloc(kBytes);
  }
  device.free(p);
}

// A stream is destroyed with work queued, and its handle comes back for another stream.
void destroyed(victim::Device& device) {
  CUstream stream = make_stream();
  for (unsigned value = 1; value < 5; ++value) {
    CUdeviceptr p = device.alloc(kBytes);
    device.spin(30000, stream);
    device.fill(p, kBytes, value, stream);
    device.free(p);
    VICTIM_CHECK(cuStreamDestroy(stream));
    stream = make_stream();
    p = device.alloc(kBytes);
    device.fill(p, kBytes, 100 + value, stream);
    device.check(p, kBytes, 100 + value, stream);
    device.free(p);
  }
}

// A stream has waited for what a block's old life did elsewhere. It is destroyed, its handle comes back, and
// the new stream uses the block: that one has not waited.
void waited(victim::Device& device) {
  CUstream const other = make_stream();
  CUstream stream = make_stream();
  for (unsigned value = 1; value < 5; ++value) {
    CUdeviceptr p = device.alloc(kBytes);
    device.spin(30000, other);
    device.fill(p, kBytes, value, other);
    device.free(p);
    p = device.alloc(kBytes);
    device.spin(1, stream);
    VICTIM_CHECK(cuStreamDestroy(stream));
    stream = make_stream();
    device.fill(p, kBytes, 100 + value, stream);
    device.check(p, kBytes, 100 + value, stream);
    device.free(p);
    VICTIM_CHECK(cuCtxSynchronize());
  }
}

// Two blocks are freed one after the other, the work of each on another stream. The newer one is first given
// to its own stream, then the older one.
void older(victim::Device& device) {
  CUstream const one = make_stream();
  CUstream const other = make_stream();
  const CUdeviceptr p = device.alloc(kBytes);
  const CUdeviceptr q = device.alloc(kBytes);
  device.spin(30000, one);
  device.fill(p, kBytes, 1, one);
  device.free(p);
  device.spin(30000, other);
  device.fill(q, kBytes, 2, other);
  device.free(q);
  const CUdeviceptr first = device.alloc(kBytes);
  const CUdeviceptr second = device.alloc(kBytes);
  for (const CUdeviceptr block : {q, p}) {
    if (block != first && block != second) continue;
    device.fill(block, kBytes, 3, other);
    device.check(block, kBytes, 3, other);
  }
  device.free(first);
  device.free(second);
}

void order_after(CUstream stream, CUstream earlier) {
  CUevent done = nullptr;
  VICTIM_CHECK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  VICTIM_CHECK(cuEventRecord(done, earlier));
  VICTIM_CHECK(cuStreamWaitEvent(stream, done, 0));
  VICTIM_CHECK(cuEventDestroy(done));
}

// Two streams are at work. A block is used on one and then on the other, freed, and given to the first again.
void both(victim::Device& device) {
  CUstream const one = nullptr;  // the one that was given work first in this process
  CUstream const other = make_stream();
  for (unsigned value = 1; value < 5; ++value) {
    device.spin(30000, other);
    device.spin(1, one);
    CUdeviceptr p = device.alloc(kBytes);
    device.fill(p, kBytes, value, one);
    order_after(other, one);
    device.spin(30000, other);
    device.check(p, kBytes, value, other);
    device.free(p);
    p = device.alloc(kBytes);
    device.fill(p, kBytes, 100 + value, one);
    device.check(p, kBytes, 100 + value, one);
    device.free(p);
  }
}

// Two blocks that lie apart are freed with work queued on one stream; a block as large as both is used on
// another.
void moved(victim::Device& device) {
  CUstream const one = make_stream();
  CUstream const other = make_stream();
  size_t bytes = kBytes;
  for (unsigned value = 1; value < 4; ++value) {
    const CUdeviceptr p = device.alloc(bytes);
    const CUdeviceptr between = device.alloc(bytes);
    const CUdeviceptr q = device.alloc(bytes);
    const CUdeviceptr last = device.alloc(bytes);
    device.spin(30000, one);
    device.fill(p, bytes, value, one);
    device.fill(q, bytes, value, one);
    device.free(p);
    device.free(q);
    const CUdeviceptr both = device.alloc(2 * bytes);
    device.fill(both, 2 * bytes, 100 + value, other);
    device.check(both, 2 * bytes, 100 + value, other);
    device.free(between);
    device.free(last);
    device.free(both);
    VICTIM_CHECK(cuCtxSynchronize());
    // Nothing of what is free now fits.
    bytes *= 4;
  }
}

// Memory is freed with work queued on it. On a device that is full then, it goes back for memory of another
// kind, which is used on another stream.
void given_back(victim::Device& device) {
  CUstream const one = make_stream();
  CUstream const other = make_stream();
  for (unsigned value = 1; value < 5; ++value) {
    const CUdeviceptr p = device.alloc(2 * kBytes);
    device.spin(30000, one);
    device.fill(p, 2 * kBytes, value, one);
    device.free(p);
    CUdeviceptr q = 0;
    VICTIM_CHECK(cuMemAllocAsync(&q, 2 * kBytes, other));
    device.fill(q, 2 * kBytes, 100 + value, other);
    device.check(q, 2 * kBytes, 100 + value, other);
    VICTIM_CHECK(cuMemFreeAsync(q, other));
    VICTIM_CHECK(cuCtxSynchronize());
  }
}

// Two streams are at work. A block is used on one of them alone and freed, that one is destroyed with work
// queued, and its handle comes back.
void renamed(victim::Device& device) {
  CUstream const other = make_stream();
  CUstream stream = make_stream();
  for (unsigned value = 1; value < 5; ++value) {
    device.spin(60000, other);
    device.spin(30000, stream);
    CUdeviceptr p = device.alloc(kBytes);
    const CUdeviceptr newer = device.alloc(kBytes);  // else the thread would keep the other one to itself
    device.fill(p, kBytes, value, stream);
    device.free(p);
    VICTIM_CHECK(cuStreamDestroy(stream));
    stream = make_stream();
    device.spin(1, stream);
    p = device.alloc(kBytes);
    device.fill(p, kBytes, 100 + value, stream);
    device.check(p, kBytes, 100 + value, stream);
    device.free(p);
    device.free(newer);
  }
}

class AnotherContext {
 public:
  AnotherContext() {
    CUdevice device = 0;
    VICTIM_CHECK(cuCtxGetDevice(&device));
    VICTIM_CHECK(cuCtxCreate(&context_, nullptr, 0, device));
    stream_ = make_stream();
    VICTIM_CHECK(cuCtxPopCurrent(nullptr));
  }
  // Writes into new memory of its own.
  void use(size_t bytes) const {
    CUdeviceptr p = 0;
    VICTIM_CHECK(cuCtxPushCurrent(context_));
    VICTIM_CHECK(cuMemAlloc(&p, bytes));
    VICTIM_CHECK(cuMemsetD8Async(p, 0xff, bytes, stream_));
    VICTIM_CHECK(cuStreamSynchronize(stream_));
    VICTIM_CHECK(cuMemFree(p));
    VICTIM_CHECK(cuCtxPopCurrent(nullptr));
  }

 private:
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

// A stream-ordered free waits for nothing, and what is given next must not wait for another stream's work.
// (Where blocks have no events of their own: with these, nothing is sealed here.)
void ordered(victim::Device& device) {
  CUstream const one = make_stream();
  CUstream const other = make_stream();
  CUdeviceptr p = device.alloc(kBytes);
  device.fill(p, kBytes, 1, one);
  device.spin(30000, other);
  VICTIM_CHECK(cuMemFreeAsync(p, one));
  p = device.alloc(kBytes);
  device.fill(p, kBytes, 2, one);
  device.check(p, kBytes, 2, one);
  VICTIM_CHECK(cuCtxSynchronize());
  device.free(p);
}

// On a full device, memory that was taken again and freed in the order of a stream that never used it goes
// back for another context.
void unused(victim::Device& device) {
  CUstream const one = make_stream();
  CUstream const other = make_stream();
  const AnotherContext another;
  for (unsigned value = 1; value < 5; ++value) {
    CUdeviceptr p = device.alloc(2 * kBytes);
    device.spin(30000, one);
    device.fill(p, 2 * kBytes, value, one);
    device.free(p);
    p = device.alloc(2 * kBytes);
    VICTIM_CHECK(cuMemFreeAsync(p, other));
    VICTIM_CHECK(cuStreamSynchronize(other));
    another.use(2 * kBytes);
    VICTIM_CHECK(cuCtxSynchronize());
  }
}

// One thread frees with work queued, another one asks for memory without having freed anything.
void others(victim::Device& device) {
  CUstream const one = make_stream();
  const CUdeviceptr p = device.alloc(kBytes);
  device.spin(30000, one);
  device.fill(p, kBytes, 1, one);
  device.free(p);
  std::thread([&] {
    device.enter_thread();
    const CUdeviceptr q = device.alloc(kBytes);
    VICTIM_CHECK(cuCtxSynchronize());
    device.free(q);
  }).join();
}

// Memory of one device is freed with work queued, taken again and used by the other one.
void peers(victim::Device& device) {
  CUcontext here = nullptr;
  CUcontext there = nullptr;
  CUdevice second = 0;
  VICTIM_CHECK(cuCtxGetCurrent(&here));
  VICTIM_CHECK(cuDeviceGet(&second, 1));
  VICTIM_CHECK(cuDevicePrimaryCtxRetain(&there, second));
  VICTIM_CHECK(cuCtxSetCurrent(there));
  VICTIM_CHECK(cuCtxEnablePeerAccess(here, 0));
  CUstream const other = make_stream();
  CUmodule module = nullptr;
  CUfunction fill = nullptr;
  VICTIM_CHECK(cuModuleLoadData(&module, victim::kKernels));
  VICTIM_CHECK(cuModuleGetFunction(&fill, module, "fill"));
  VICTIM_CHECK(cuCtxSetCurrent(here));
  CUstream const one = make_stream();
  for (unsigned value = 1; value < 5; ++value) {
    CUdeviceptr p = device.alloc(kBytes);
    device.spin(30000, one);
    device.fill(p, kBytes, value, one);
    device.free(p);
    p = device.alloc(kBytes);
    VICTIM_CHECK(cuCtxSetCurrent(there));
    size_t bytes = kBytes;
    unsigned now = 100 + value;
    void* parameters[] = {&p, &bytes, &now};
    VICTIM_CHECK(cuLaunchKernel(fill, 256, 1, 1, 256, 1, 1, 0, other, parameters, nullptr));
    VICTIM_CHECK(cuStreamSynchronize(other));
    VICTIM_CHECK(cuCtxSetCurrent(here));
    device.check(p, kBytes, now, one);
    device.free(p);
  }
}

// Two threads, each on its own default stream, which has the same name in both.
void threads(victim::Device& device) {
  for (unsigned value = 1; value < 5; ++value) {
    const CUdeviceptr p = device.alloc(kBytes);
    device.spin(30000, CU_STREAM_PER_THREAD);
    device.fill(p, kBytes, value, CU_STREAM_PER_THREAD);
    device.free(p);
    std::thread([&] {
      device.enter_thread();
      const CUdeviceptr q = device.alloc(kBytes);
      device.fill(q, kBytes, 100 + value, CU_STREAM_PER_THREAD);
      device.check(q, kBytes, 100 + value, CU_STREAM_PER_THREAD);
      device.free(q);
    }).join();
  }
}

// A place that a host function reaches and does not leave until it may.
class Turnstile {
 public:
  static void stand(void* self) { static_cast<Turnstile*>(self)->pass(); }
  void pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    reached_ = true;
    moved_.notify_all();
    moved_.wait(lock, [this] { return open_; });
  }
  void wait_until_reached() {
    std::unique_lock<std::mutex> lock(mutex_);
    moved_.wait(lock, [this] { return reached_; });
  }
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    moved_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  bool reached_ = false;
  bool open_ = false;
};

// A thread waits for a stream. Meanwhile memory is used there, freed and taken again; the wait does not cover
// that. Frees are stream-ordered, for the driver's plain one would wait for the host function.
void wait(victim::Device& device) {
  CUstream const one = make_stream();
  CUstream const other = make_stream();
  CUdeviceptr p = device.alloc(kBytes);
  device.fill(p, kBytes, 1, one);
  VICTIM_CHECK(cuMemFreeAsync(p, one));
  p = device.alloc(kBytes);
  Turnstile turnstile;
  VICTIM_CHECK(cuLaunchHostFunc(one, &Turnstile::stand, &turnstile));
  std::thread waiter([&] {
    device.enter_thread();
    VICTIM_CHECK(cuStreamSynchronize(one));
  });
  turnstile.wait_until_reached();
  device.spin(30000, one);
  device.fill(p, kBytes, 2, one);
  VICTIM_CHECK(cuMemFreeAsync(p, one));
  turnstile.open();
  waiter.join();
  p = device.alloc(kBytes);
  device.fill(p, kBytes, 3, other);
  device.check(p, kBytes, 3, other);
  device.free(p);
}

unsigned graph_rounds = 100;

// One thread launches graphs into a stream. Another uses memory there whose old work is on a third stream,
// and looks at it when that work has surely run, ordered or not.
void graphs(victim::Device& device) {
  CUstream const shared = make_stream();
  CUstream const other = make_stream();
  std::atomic<bool> is_over{false};
  const CUdeviceptr own = device.alloc(512);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  VICTIM_CHECK(cuStreamBeginCapture(shared, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  device.fill(own, 512, 1, shared);
  VICTIM_CHECK(cuStreamEndCapture(shared, &graph));
  VICTIM_CHECK(cuGraphInstantiate(&exec, graph, 0));
  std::thread launcher([&] {
    device.enter_thread();
    for (unsigned i = 1; !is_over; ++i) {
      if (i % 16 == 0) {
        CUDA_GRAPH_INSTANTIATE_PARAMS params{};
        params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
        params.hUploadStream = shared;
        CUgraphExec uploaded = nullptr;
        VICTIM_CHECK(cuGraphInstantiateWithParams(&uploaded, graph, &params));
        VICTIM_CHECK(cuGraphExecDestroy(uploaded));
      }
      VICTIM_CHECK(i % 8 == 0 ? cuGraphUpload(exec, shared) : cuGraphLaunch(exec, shared));
      if (i % 32 == 0) VICTIM_CHECK(cuStreamSynchronize(shared));
    }
  });
  CUdeviceptr p = device.alloc(kBytes);
  for (unsigned round = 0; round < graph_rounds; ++round) {
    const unsigned value = round & 0x7f;
    device.spin(30000, other);
    device.fill(p, kBytes, value, other);
    device.free(p);
    p = device.alloc(kBytes);
    device.fill(p, kBytes, 0x80 + value, shared);
    device.spin(60000, shared);
    device.check(p, kBytes, 0x80 + value, shared);
    VICTIM_CHECK(cuStreamSynchronize(shared));
  }
  is_over = true;
  launcher.join();
  device.free(p);
  device.free(own);
  VICTIM_CHECK(cuGraphExecDestroy(exec));
  VICTIM_CHECK(cuGraphDestroy(graph));
}

}  // namespace

int main(int argc, char** argv) {
  struct Scene {
    const char* name;
    void (*play)(victim::Device&);
  };
  constexpr Scene kScenes[] = {
      {"streams", streams}, {"destroyed", destroyed}, {"waited", waited}, {"older", older},
      {"both", both},       {"renamed", renamed},     {"moved", moved},   {"given_back", given_back},
      {"unused", unused},   {"threads", threads},     {"wait", wait},     {"ordered", ordered},
      {"others", others},   {"peers", peers},         {"graphs", graphs}};
  if (argc == 3) graph_rounds = static_cast<unsigned>(std::atoi(argv[2]));
  for (const Scene& scene : kScenes) {
    if (argc < 2 || std::strcmp(argv[1], scene.name) != 0) continue;
    victim::Device device(victim::linked_api());
    VICTIM_CHECK(cuCtxSynchronize());
    scene.play(device);
    return device.finish("torture_races");
  }
  victim::die("no such scene", argc > 1 ? argv[1] : "", 0);
}
