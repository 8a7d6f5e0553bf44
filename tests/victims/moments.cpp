// A storm of allocations on threads with little stack, ended at a random moment in a random way: moments
// SEED. SIGUSR2 comes now and then, for a report in the middle. Prints nothing; how it ended is the exit
// code. Handlers of the program's own call exit() for half of the seeds.
#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <random>

namespace {

constexpr int kThreads = 3;
constexpr size_t kStackLeft = 16 * 1024;
CUcontext context = nullptr;

void storm(unsigned seed) {
  std::minstd_rand random(seed);
  CUdeviceptr blocks[24] = {};
  for (;;) {
    CUdeviceptr& one = blocks[random() % 24];
    if (one != 0) cuMemFree(one);
    one = 0;
    cuMemAlloc(&one, size_t{1} << (random() % 15 + 8));
  }
}

[[gnu::noinline]] void with_little_stack(void (*run)(unsigned), unsigned seed) {
  pthread_attr_t attributes;
  void* lowest = nullptr;
  size_t size = 0;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &lowest, &size);
  const size_t left =
      static_cast<size_t>(static_cast<char*>(__builtin_frame_address(0)) - static_cast<char*>(lowest));
  volatile char* const used = static_cast<char*>(__builtin_alloca(left - kStackLeft));
  used[0] = 1;
  run(seed);
  used[0] = 2;
}

void* run_thread(void* seed) {
  cuCtxSetCurrent(context);
  with_little_stack(storm, static_cast<unsigned>(reinterpret_cast<uintptr_t>(seed)));
  return nullptr;
}

// Once: a second thread that calls exit() meanwhile ends the process under the first one's destructors, with
// any library. That thread goes on: it may hold a lock of the driver, which the driver's end takes.
void exit_now(int) {
  static std::atomic<bool> exits{false};
  if (!exits.exchange(true)) std::exit(3);
}

void rest(unsigned microseconds) {
  const timespec moment{0, static_cast<long>(microseconds) * 1000};
  nanosleep(&moment, nullptr);
}

}  // namespace

int main(int count, char** arguments) {
  const unsigned seed = count > 1 ? static_cast<unsigned>(std::atol(arguments[1])) : 1;
  std::mt19937 random(seed);
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) return 9;
  cuCtxSetCurrent(context);
  // The driver is asked for most segments first, of large and of small blocks: what it does when it is
  // interrupted is its own affair.
  for (const size_t bytes : {size_t{256} << 20, size_t{256}}) {
    CUdeviceptr warm = 0;
    if (cuMemAlloc(&warm, bytes) != CUDA_SUCCESS || cuMemFree(warm) != CUDA_SUCCESS) return 9;
  }
  struct sigaction there = {};
  sigaction(SIGUSR2, nullptr, &there);
  const bool dumps = there.sa_handler != SIG_DFL;
  const int endings[] = {SIGTERM, SIGINT, SIGHUP, SIGALRM};
  const int ending = endings[seed % 4];
  if (seed % 8 >= 4 || ending == SIGALRM) signal(ending, exit_now);
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    if (pthread_create(&threads[i], nullptr, run_thread,
                       reinterpret_cast<void*>(uintptr_t{seed} * 31 + static_cast<uintptr_t>(i))) != 0)
      return 9;
  }
  rest(random() % 3000);
  for (unsigned i = random() % 3; dumps && i > 0; --i) {
    pthread_kill(threads[random() % kThreads], SIGUSR2);
    rest(random() % 500);
  }
  // Two at once now and then, as a launcher and a user may send them.
  pthread_kill(threads[random() % kThreads], ending);
  if (random() % 4 == 0) pthread_kill(threads[random() % kThreads], ending);
  if (random() % 4 == 0) kill(getpid(), SIGTERM);
  for (;;) pause();
}
