// Minimal program for a fault of the driver (docs/driver-reports.md): a thread that ends while its own
// default stream has work now and then never ends. Needs nothing of cupool:
//   g++ -O2 -pthread ending_thread.cpp -lcuda && ./a.out leave
// Usage: ending_thread leave|wait [threads one after the other] [side by side] [processes]
//   leave: each thread ends with work in CU_STREAM_PER_THREAD     wait: it waits for that stream first
// A process whose threads have not ended for 30 seconds says so and stops itself with SIGABRT, so that its
// stacks can be read.
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#define CHECK(call)                                                                          \
  do {                                                                                       \
    const CUresult check_result_ = (call);                                                   \
    if (check_result_ == CUDA_SUCCESS) break;                                                \
    std::fprintf(stderr, "ending_thread: %s: %d\n", #call, static_cast<int>(check_result_)); \
    std::_Exit(2);                                                                           \
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

constexpr unsigned kSecondsOfHang = 30;

struct Options {
  bool waits = false;
  unsigned threads = 20000;
  unsigned side_by_side = 8;
  unsigned processes = 4;
};

// What a short-lived thread of a program does: some work in its own default stream, and the end.
void live(const Options& options, CUcontext context, CUfunction spin, CUdeviceptr memory) {
  CUevent event = nullptr;
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (unsigned i = 0; i < 3; ++i) {
    unsigned long long ns = 20'000;
    void* parameters[] = {&ns};
    CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, parameters, nullptr));
    CHECK(cuMemsetD32Async(memory, i, 1, CU_STREAM_PER_THREAD));
  }
  CHECK(cuEventRecord(event, CU_STREAM_PER_THREAD));
  CHECK(cuEventDestroy(event));
  if (options.waits) CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

void run(const Options& options) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  CUdeviceptr memory = 0;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, kSpin));
  CHECK(cuModuleGetFunction(&spin, module, "spin"));
  CHECK(cuMemAlloc(&memory, sizeof(unsigned)));
  std::atomic<unsigned> ended{0}, over{0};
  std::vector<std::thread> parents;
  for (unsigned i = 0; i < options.side_by_side; ++i) {
    parents.emplace_back([&] {
      for (unsigned n = 0; n < options.threads; ++n) {
        std::thread([&] { live(options, context, spin, memory); }).join();
        ++ended;
      }
      ++over;
    });
  }
  unsigned quiet = 0;
  for (unsigned before = 0; over < options.side_by_side; ++quiet) {
    if (ended != before) quiet = 0;
    before = ended;
    if (quiet == kSecondsOfHang * 10) {
      std::printf("pid %d: hangs after %u threads\n", static_cast<int>(getpid()), ended.load());
      std::fflush(stdout);
      std::abort();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  for (std::thread& parent : parents) parent.join();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc < 2 || (std::strcmp(argv[1], "leave") != 0 && std::strcmp(argv[1], "wait") != 0)) {
    std::fprintf(stderr, "usage: ending_thread leave|wait [threads] [side by side] [processes]\n");
    return 2;
  }
  options.waits = std::strcmp(argv[1], "wait") == 0;
  if (argc > 2) options.threads = static_cast<unsigned>(std::atoi(argv[2]));
  if (argc > 3) options.side_by_side = static_cast<unsigned>(std::atoi(argv[3]));
  if (argc > 4) options.processes = static_cast<unsigned>(std::atoi(argv[4]));
  for (unsigned i = 0; i < options.processes; ++i) {
    if (fork() != 0) continue;
    run(options);
    _exit(0);
  }
  unsigned hung = 0, failed = 0;
  for (unsigned i = 0; i < options.processes; ++i) {
    int status = 0;
    wait(&status);
    hung += WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    failed += WIFEXITED(status) && WEXITSTATUS(status) != 0;
  }
  if (failed != 0) return 2;
  std::printf("%s: %u of %u processes hung; %u threads each\n", argv[1], hung, options.processes,
              options.threads * options.side_by_side);
  return hung == 0 ? 0 : 1;
}
