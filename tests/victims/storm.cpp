// Victim: libraries that are loaded and unloaded, whose constructors and destructors allocate; threads that
// end and free as they do; children of fork; signals. All at once, for so many seconds. It must come to its
// end.
#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

std::atomic<bool> is_over{false};
std::atomic<unsigned long> signals{0}, loads{0}, loaders{0}, threads{0}, forks{0}, pairs{0};
CUcontext context = nullptr;

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: %d\n", what, static_cast<int>(result));
  std::_Exit(1);
}

void pair(size_t bytes) {
  CUdeviceptr p = 0;
  check(cuMemAlloc(&p, bytes), "cuMemAlloc");
  check(cuMemFree(p), "cuMemFree");
  ++pairs;
}

struct FreesAtTheEnd {
  ~FreesAtTheEnd() {
    if (held != 0) check(cuMemFree(held), "cuMemFree at the end of a thread");
  }
  CUdeviceptr held = 0;
};
thread_local FreesAtTheEnd own;

void load(const char* path) {
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  for (unsigned long turn = 0; !is_over; ++turn) {
    if (turn == 2) ++loaders;
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::_Exit(1);
    }
    const auto work = reinterpret_cast<void (*)(void (*)(size_t))>(dlsym(library, "work"));
    if (work != nullptr) work(pair);
    dlclose(library);
    ++loads;
  }
}

void end_threads() {
  while (!is_over) {
    std::vector<std::thread> some;
    for (int i = 0; i < 4; ++i) {
      some.emplace_back([i] {
        check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
        check(cuMemAlloc(&own.held, static_cast<size_t>(1000 + i)), "cuMemAlloc in a thread");
        pair(5000);
        ++threads;
      });
    }
    for (std::thread& one : some) one.join();
  }
}

void fork_children() {
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  while (!is_over) {
    const pid_t child = fork();
    if (child == 0) {
      CUdeviceptr p = 0;
      cuMemAlloc(&p, 1000);  // refused: CUDA does not work in a child
      _exit(0);
    }
    int status = 0;
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0)) {
      std::fprintf(stderr, "a child ended with %x\n", static_cast<unsigned>(status));
      std::_Exit(1);
    }
    ++forks;
    pair(3000);
  }
}

}  // namespace

// The libraries' own allocations.
extern "C" [[gnu::visibility("default")]] void storm_pair() { pair(20000); }

int main(int count, char** words) {
  if (count < 3) return 2;
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  struct sigaction act = {};
  act.sa_handler = [](int) { ++signals; };
  act.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &act, nullptr);
  const itimerval often = {{0, 2000}, {0, 2000}};
  setitimer(ITIMER_REAL, &often, nullptr);
  std::vector<std::thread> all;
  for (int i = 2; i < count; ++i) all.emplace_back(load, words[i]);
  all.emplace_back(end_threads);
  all.emplace_back(fork_children);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::atol(words[1]));
  // Each loader at least twice, and the others once round, however slow the machine is.
  while (std::chrono::steady_clock::now() < end || loaders + 2 < static_cast<unsigned long>(count) ||
         loads < 8 || forks < 2 || threads < 8) {
    pair(700);
    std::this_thread::yield();
  }
  is_over = true;
  for (std::thread& one : all) one.join();
  std::printf("%lu loads, %lu threads, %lu forks, %lu signals, %lu pairs\n", loads.load(), threads.load(),
              forks.load(), signals.load(), pairs.load());
  return 0;
}
