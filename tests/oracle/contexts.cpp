// Valid programs with two contexts, x and y, and a thread or more in each. Arguments: the case, and "devices"
// if y is of another device than x.
//   ranks-host      y's thread frees and allocates behind a kernel that waits; x's thread then submits work,
//                   and the host answers the kernel
//   ranks-device    the same, and the work of x answers
//   refused         work is under way in y, and x has no memory left
//   refused-awaits  the same, and that work waits for the host, which asks x first
//   refused-here    the work under way is x's own
//   visit           y's thread frees and allocates behind work; x's thread copies from the new block
//   visit-busy      the same, with new work in y before the copy
//   visit-none      the same as visit, but the copy names memory of x alone
//   lock            a launch stands in a full queue of x, and an allocation beside it; y's thread allocates
//                   and then answers the kernel that all of it waits for
#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

void must(CUresult result, int line) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "contexts: line %d: error %d\n", line, static_cast<int>(result));
  std::_Exit(2);
}
#define MUST(call) must((call), __LINE__)

constexpr size_t kBytes = 1 << 20;
constexpr unsigned kAnswer = 0x01010101;  // what fill writes with 1

struct Side {
  CUcontext context = nullptr;
  CUfunction fill = nullptr, spin = nullptr, await = nullptr;
  CUstream stream = nullptr;

  void enter() const { MUST(cuCtxSetCurrent(context)); }
  CUdeviceptr alloc(size_t bytes) const {
    CUdeviceptr p = 0;
    MUST(cuMemAlloc(&p, bytes));
    return p;
  }
  void launch(CUfunction f, void** parameters) const {
    MUST(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }
  void fills(CUdeviceptr p, size_t bytes) const {
    unsigned value = 1;
    void* parameters[] = {&p, &bytes, &value};
    launch(fill, parameters);
  }
  void spins() const {
    unsigned long long ns = 20000;
    void* parameters[] = {&ns};
    launch(spin, parameters);
  }
  void awaits(const unsigned* word) const {
    auto p = reinterpret_cast<CUdeviceptr>(word);
    unsigned value = kAnswer;
    void* parameters[] = {&p, &value};
    launch(await, parameters);
  }
};

Side make_side(int device) {
  Side side;
  CUmodule module = nullptr;
  MUST(cuCtxCreate(&side.context, nullptr, 0, device));
  MUST(cuModuleLoadData(&module, "the simulated device knows these kernels by name"));
  MUST(cuModuleGetFunction(&side.fill, module, "fill"));
  MUST(cuModuleGetFunction(&side.spin, module, "spin"));
  MUST(cuModuleGetFunction(&side.await, module, "await"));
  MUST(cuStreamCreate(&side.stream, CU_STREAM_NON_BLOCKING));
  side.spins();  // so that a cache has seen the context
  MUST(cuCtxSynchronize());
  return side;
}

// Until `over` is true; the bare driver may keep it from becoming true, which is seen in so long.
template <typename Over>
void give_time_for(Over&& over, int milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (!over() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

void answer(unsigned* word) { __atomic_store_n(word, kAnswer, __ATOMIC_RELEASE); }

void ranks(const Side& x, const Side& y, unsigned* word, bool on_device) {
  std::atomic<bool> has_memory{false};
  std::thread of_y([&] {
    y.enter();
    const CUdeviceptr p = y.alloc(kBytes);
    y.awaits(word);
    y.fills(p, kBytes);
    MUST(cuMemFree(p));  // the driver's waits for the word
    y.alloc(kBytes);
    has_memory = true;
  });
  give_time_for([&] { return has_memory.load(); }, 200);
  std::thread of_x([&] {
    x.enter();
    MUST(cuMemFree(x.alloc(kBytes)));  // a free of x waits for x alone
    const CUdeviceptr q = x.alloc(2 * kBytes);
    x.fills(q, kBytes);
    if (on_device) x.fills(reinterpret_cast<CUdeviceptr>(word), sizeof *word);
    if (!on_device) answer(word);
    MUST(cuStreamSynchronize(x.stream));
  });
  of_y.join();
  of_x.join();
}

void refused(const Side& x, const Side& busy, unsigned* word, bool waits_for_host) {
  busy.enter();
  if (waits_for_host) busy.awaits(word);
  if (!waits_for_host) busy.spins();
  x.enter();
  size_t all = 0;
  CUdeviceptr p = 0;
  MUST(cuMemGetInfo(nullptr, &all));
  if (cuMemAlloc(&p, 2 * all) != CUDA_ERROR_OUT_OF_MEMORY) std::_Exit(3);
  answer(word);
}

void visit(const Side& x, const Side& y, bool is_busy, bool names_y) {
  CUdeviceptr p = 0;
  std::thread of_y([&] {
    y.enter();
    p = y.alloc(kBytes);
    y.spins();
    y.fills(p, kBytes);
    MUST(cuMemFree(p));
    p = y.alloc(kBytes);
    if (is_busy) y.spins();
  });
  of_y.join();
  x.enter();
  const CUdeviceptr q = x.alloc(kBytes), other = x.alloc(kBytes);
  if (names_y) MUST(cuMemcpyPeerAsync(q, x.context, p, y.context, kBytes, x.stream));
  if (!names_y) MUST(cuMemcpyDtoDAsync(q, other, kBytes, x.stream));
  MUST(cuStreamSynchronize(x.stream));
}

void lock(const Side& x, const Side& y, unsigned* word) {
  constexpr int kFull = 1019;  // behind the kernel that waits
  std::atomic<int> launched{0}, allocated{0};
  std::atomic<bool> is_answered{false};
  std::thread launches([&] {
    x.enter();
    x.awaits(word);
    for (int i = 0; i < kFull + 20; ++i, ++launched) x.spins();
  });
  std::thread allocates([&] {
    x.enter();
    while (launched < kFull) std::this_thread::yield();
    for (; !is_answered && allocated < 10000; ++allocated) x.alloc(4096);
  });
  std::thread answers([&] {
    y.enter();
    while (launched < kFull) std::this_thread::yield();
    for (int seen = -1; seen != allocated;) {
      seen = allocated;
      give_time_for([&] { return seen != allocated; }, 500);
      MUST(cuMemFree(y.alloc(kBytes)));
    }
    answer(word);
    is_answered = true;
  });
  launches.join();
  allocates.join();
  answers.join();
}

}  // namespace

int main(int count, char** words) {
  const std::string how = words[1];
  MUST(cuInit(0));
  const Side x = make_side(0);
  const Side y = make_side(count > 2 && std::strcmp(words[2], "devices") == 0 ? 1 : 0);
  unsigned* word = nullptr;
  MUST(cuMemHostAlloc(reinterpret_cast<void**>(&word), sizeof *word, CU_MEMHOSTALLOC_PORTABLE));
  *word = 0;
  if (how == "ranks-host" || how == "ranks-device") ranks(x, y, word, how == "ranks-device");
  if (how == "refused" || how == "refused-awaits") refused(x, y, word, how == "refused-awaits");
  if (how == "refused-here") refused(x, x, word, false);
  if (how == "visit" || how == "visit-busy") visit(x, y, how == "visit-busy", true);
  if (how == "visit-none") visit(x, y, false, false);
  if (how == "lock") lock(x, y, word);
  for (const Side* side : {&x, &y}) {
    side->enter();
    MUST(cuCtxSynchronize());
  }
  std::printf("contexts: it ended\n");
  return 0;
}
