// Minimal program for a fault of the driver (docs/driver-reports.md): a wait for an event is lost while
// another thread launches a graph into the same stream. Needs nothing of cupool:
//   g++ -O2 -pthread lost_wait.cpp -lcuda && ./a.out launch
// Usage: lost_wait launch|upload|mutex|context|alone|control [waits of a pair] [processes] [pairs in each]
//   launch, upload: beside cuGraphLaunch, cuGraphUpload     mutex: both calls under one mutex
//   context: cuCtxWaitEvent beside cuGraphLaunch            alone: no graph
//   control: no wait is made, so that nearly every one must be found lost
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call)                                                                      \
  do {                                                                                   \
    const CUresult check_result_ = (call);                                               \
    if (check_result_ == CUDA_SUCCESS) break;                                            \
    std::fprintf(stderr, "lost_wait: %s: %d\n", #call, static_cast<int>(check_result_)); \
    std::_Exit(2);                                                                       \
  } while (0)

namespace {

const char kSpin[] = R"(
.version 6.4
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 ns)
{
  .reg .pred %p;
  .reg .b64 %ns, %begin, %now;
  ld.param.u64 %ns, [ns];
  mov.u64 %begin, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %p, %now, %ns;
  @%p bra again;
  ret;
}
)";

struct Options {
  std::string mode;
  unsigned waits = 20000;
  unsigned processes = 3;
  unsigned pairs = 3;
};

// Two threads and the stream that both use.
class Pair {
 public:
  // Made one after the other, before any of them runs: cuCtxWaitEvent would end another one's capture.
  Pair(const Options& options, CUcontext context, CUfunction spin)
      : options_(options), context_(context), spin_(spin) {
    CUgraph graph = nullptr;
    CHECK(cuStreamCreate(&shared_, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(shared_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    this->spin(0, shared_);
    CHECK(cuStreamEndCapture(shared_, &graph));
    CHECK(cuGraphInstantiate(&graph_, graph, 0));
  }

  // How many waits did not hold.
  unsigned run() {
    CHECK(cuCtxSetCurrent(context_));
    CUstream writer = nullptr;
    CUevent written = nullptr, read = nullptr;
    CUdeviceptr word = 0;
    void* seen = nullptr;
    CHECK(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&written, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&read, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&word, sizeof(unsigned)));
    CHECK(cuMemsetD32(word, 0, 1));
    CHECK(cuMemHostAlloc(&seen, sizeof(unsigned), 0));
    std::thread launcher([this] { launch_graphs(); });
    while (!running_) std::this_thread::yield();
    unsigned lost = 0;
    for (unsigned i = 1; i <= options_.waits; ++i) {
      // The word is written a while after this thread has asked for the wait.
      spin(100'000, writer);
      CHECK(cuMemsetD32Async(word, i, 1, writer));
      CHECK(cuEventRecord(written, writer));
      if (options_.mode != "control") wait_for(written);
      CHECK(cuMemcpyDtoHAsync(seen, word, sizeof(unsigned), shared_));
      CHECK(cuEventRecord(read, shared_));
      CHECK(cuEventSynchronize(read));
      lost += *static_cast<volatile unsigned*>(seen) != i;
      CHECK(cuStreamSynchronize(writer));
    }
    over_ = true;
    launcher.join();
    return lost;
  }

 private:
  void spin(unsigned long long ns, CUstream stream) {
    void* parameters[] = {&ns};
    CHECK(cuLaunchKernel(spin_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }

  void wait_for(CUevent event) {
    const std::unique_lock<std::mutex> held = apart();
    if (options_.mode == "context")
      CHECK(cuCtxWaitEvent(context_, event));
    else
      CHECK(cuStreamWaitEvent(shared_, event, 0));
  }

  void launch_graphs() {
    CHECK(cuCtxSetCurrent(context_));
    running_ = true;
    for (unsigned i = 1; !over_; ++i) {
      if (options_.mode == "alone") {
        std::this_thread::yield();
        continue;
      }
      {
        const std::unique_lock<std::mutex> held = apart();
        CHECK(options_.mode == "upload" ? cuGraphUpload(graph_, shared_) : cuGraphLaunch(graph_, shared_));
      }
      // So that the stream's queue does not fill up.
      if (i % 32 == 0) CHECK(cuStreamSynchronize(shared_));
    }
  }

  std::unique_lock<std::mutex> apart() {
    return options_.mode == "mutex" ? std::unique_lock<std::mutex>(mutex_) : std::unique_lock<std::mutex>();
  }

  const Options& options_;
  const CUcontext context_;
  const CUfunction spin_;
  CUstream shared_ = nullptr;
  CUgraphExec graph_ = nullptr;
  std::mutex mutex_;
  std::atomic<bool> running_{false}, over_{false};
};

unsigned lost_in_this_process(const Options& options) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, kSpin));
  CHECK(cuModuleGetFunction(&spin, module, "spin"));
  std::atomic<unsigned> lost{0};
  std::list<Pair> pairs;
  for (unsigned i = 0; i < options.pairs; ++i) pairs.emplace_back(options, context, spin);
  std::vector<std::thread> threads;
  for (Pair& pair : pairs) threads.emplace_back([&] { lost += pair.run(); });
  for (std::thread& thread : threads) thread.join();
  return lost;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc > 1) options.mode = argv[1];
  if (argc > 2) options.waits = static_cast<unsigned>(std::atoi(argv[2]));
  if (argc > 3) options.processes = static_cast<unsigned>(std::atoi(argv[3]));
  if (argc > 4) options.pairs = static_cast<unsigned>(std::atoi(argv[4]));
  bool known = false;
  for (const char* mode : {"launch", "upload", "mutex", "context", "alone", "control"})
    known = known || options.mode == mode;
  if (!known) {
    std::fprintf(stderr,
                 "usage: lost_wait launch|upload|mutex|context|alone|control [waits] [processes] [pairs]\n");
    return 2;
  }
  // Several processes, which take turns on the device: with one the fault is rare.
  int ends[2];
  if (pipe(ends) != 0) return 2;
  for (unsigned i = 0; i < options.processes; ++i) {
    if (fork() != 0) continue;
    const unsigned lost = lost_in_this_process(options);
    _exit(write(ends[1], &lost, sizeof lost) == sizeof lost ? 0 : 2);
  }
  unsigned lost = 0;
  bool failed = false;
  for (unsigned i = 0; i < options.processes; ++i) {
    int status = 0;
    wait(&status);
    unsigned of_one = 0;
    if (status != 0 || read(ends[0], &of_one, sizeof of_one) != sizeof of_one) failed = true;
    lost += of_one;
  }
  if (failed) return 2;
  std::printf("%s: %u of %u waits did not hold\n", options.mode.c_str(), lost,
              options.waits * options.processes * options.pairs);
  return lost == 0 ? 0 : 1;
}
