// A correct program with all that makes reuse hard: streams of every kind, memory handed from stream to
// stream by events, frees with the work still queued, threads, graphs, managed memory. Every use is ordered
// after the one before, so the oracle may never accuse it, whatever the seed. Arguments: seed, rounds,
// threads, managed.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace {

void must(CUresult result, int line) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "program: line %d: error %d\n", line, static_cast<int>(result));
  std::_Exit(2);
}
#define MUST(call) must((call), __LINE__)

struct Kernels {
  CUfunction fill = nullptr;
  CUfunction check = nullptr;
  CUfunction spin = nullptr;
};

struct Held {
  CUdeviceptr p = 0;
  size_t bytes = 0;
  unsigned value = 0;
  CUstream stream = nullptr;
};

class Worker {
 public:
  Worker(const Kernels& kernels, unsigned seed) : kernels_(kernels), random_(seed) {
    MUST(cuMemAlloc_v2(&errors_, kVerdictBytes));
    MUST(cuMemsetD8_v2(errors_, 0, kVerdictBytes));
    MUST(cuCtxSynchronize());
    streams_ = {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    for (int i = 0; i < 4; ++i) {
      CUstream stream = nullptr;
      MUST(cuStreamCreate(&stream, i < 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
      streams_.push_back(stream);
    }
    MUST(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
  }

  void round(bool graphs) {
    switch (random_() % (graphs ? 9 : 8)) {
      case 0:
      case 1:
      case 2:
        take();
        break;
      case 3:
        use();
        break;
      case 4:
        hand_over();
        break;
      case 5:
      case 6:
        give();
        break;
      case 7:
        wait_a_little();
        break;
      case 8:
        run_graph();
        break;
    }
    if (held_.size() > 12) give();
  }

  // The host writes, the device reads, and the memory is freed with the reading still queued.
  void managed_round() {
    Held h{0, 8192, static_cast<unsigned>(random_() % 250), any_stream()};
    MUST(cuMemAllocManaged(&h.p, h.bytes, CU_MEM_ATTACH_GLOBAL));
    std::memset(reinterpret_cast<void*>(h.p), static_cast<int>(h.value), h.bytes);
    spin(h.stream);
    check(h);
    MUST(cuMemFree_v2(h.p));
  }

  unsigned long long finish() {
    while (!held_.empty()) give();
    MUST(cuCtxSynchronize());
    unsigned long long wrong = 0;
    MUST(cuMemcpyDtoH_v2(&wrong, errors_, sizeof wrong));
    MUST(cuMemFree_v2(errors_));
    for (size_t i = 2; i < streams_.size(); ++i) MUST(cuStreamDestroy_v2(streams_[i]));
    return wrong;
  }

 private:
  void launch(CUfunction f, CUstream stream, void** parameters) {
    MUST(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }
  void fill(Held& h) {
    void* parameters[] = {&h.p, &h.bytes, &h.value};
    launch(kernels_.fill, h.stream, parameters);
  }
  void check(Held& h) {
    void* parameters[] = {&h.p, &h.bytes, &h.value, &errors_};
    launch(kernels_.check, h.stream, parameters);
  }
  void spin(CUstream stream) {
    unsigned long long ns = 1000 * (random_() % 20);
    void* parameters[] = {&ns};
    launch(kernels_.spin, stream, parameters);
  }
  CUstream any_stream() { return streams_[random_() % streams_.size()]; }
  Held& any_held() { return held_[random_() % held_.size()]; }

  void take() {
    static constexpr size_t kSizes[] = {256, 4096, 70000, 3 << 20};
    Held h;
    h.bytes = kSizes[random_() % 4];
    h.value = static_cast<unsigned>(random_() % 250);
    h.stream = any_stream();
    MUST(cuMemAlloc_v2(&h.p, h.bytes));
    if (random_() % 2 == 0) spin(h.stream);
    fill(h);
    check(h);
    held_.push_back(h);
  }
  void use() {
    if (!held_.empty()) check(any_held());
  }
  void hand_over() {
    if (held_.empty()) return;
    Held& h = any_held();
    MUST(cuEventRecord(event_, h.stream));
    h.stream = any_stream();
    MUST(cuStreamWaitEvent(h.stream, event_, 0));
    check(h);
    h.value = static_cast<unsigned>(random_() % 250);
    fill(h);
  }
  void give() {
    if (held_.empty()) return;
    const size_t i = random_() % held_.size();
    MUST(cuMemFree_v2(held_[i].p));
    held_.erase(held_.begin() + static_cast<long>(i));
  }
  void wait_a_little() {
    if (random_() % 8 == 0) {
      MUST(cuStreamSynchronize(any_stream()));
    } else {
      const CUresult result = cuStreamQuery(any_stream());
      if (result != CUDA_ERROR_NOT_READY) MUST(result);
    }
  }
  // Two branches of one graph on memory of their own, joined again.
  void run_graph() {
    CUstream trunk = streams_[4];
    CUstream branch = streams_[5];
    Held a{0, 4096, 3, trunk};
    Held b{0, 4096, 4, branch};
    MUST(cuMemAlloc_v2(&a.p, a.bytes));
    MUST(cuMemAlloc_v2(&b.p, b.bytes));
    MUST(cuStreamBeginCapture_v2(trunk, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuEventRecord(event_, trunk));
    MUST(cuStreamWaitEvent(branch, event_, 0));
    fill(a);
    fill(b);
    check(b);
    MUST(cuEventRecord(event_, branch));
    check(a);
    MUST(cuStreamWaitEvent(trunk, event_, 0));
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    MUST(cuStreamEndCapture(trunk, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, any_stream()));
    MUST(cuGraphLaunch(exec, any_stream()));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuMemFree_v2(a.p));
    MUST(cuMemFree_v2(b.p));
  }

  Kernels kernels_;
  std::mt19937 random_;
  static constexpr std::size_t kVerdictBytes = 4 * sizeof(unsigned long long);
  CUdeviceptr errors_ = 0;
  CUevent event_ = nullptr;
  std::vector<CUstream> streams_;
  std::vector<Held> held_;
};

}  // namespace

int main(int argc, char** argv) {
  const unsigned seed = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 150;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 1;
  const bool managed = argc > 4 && std::strcmp(argv[4], "managed") == 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  Kernels kernels;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  MUST(cuModuleLoadData(&module, "the simulated device knows these kernels by name"));
  MUST(cuModuleGetFunction(&kernels.fill, module, "fill"));
  MUST(cuModuleGetFunction(&kernels.check, module, "check"));
  MUST(cuModuleGetFunction(&kernels.spin, module, "spin"));
  std::vector<unsigned long long> wrong(static_cast<size_t>(threads), 0);
  std::vector<std::thread> others;
  for (int t = 0; t < threads; ++t) {
    others.emplace_back([&, t] {
      MUST(cuCtxSetCurrent(context));
      Worker worker(kernels, seed * 31 + static_cast<unsigned>(t));
      // Captures forbid context-wide calls in every thread, so graphs are for the lonely.
      for (int i = 0; i < rounds; ++i) {
        worker.round(threads == 1);
        if (managed && i % 8 == 0) worker.managed_round();
      }
      wrong[static_cast<size_t>(t)] = worker.finish();
    });
  }
  for (std::thread& other : others) other.join();
  unsigned long long sum = 0;
  for (const unsigned long long one : wrong) sum += one;
  std::printf("program: wrong=%llu\n", sum);
  return sum == 0 ? 0 : 1;
}
