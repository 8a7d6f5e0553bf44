// A program that does some work and then ends in some way, for `cupool doctor`: ends WORK HOW [BOOK].
//   WORK  none     only a context           served   20 blocks       failed   one block larger than the
//   device
//         ordered  stream-ordered alone      managed  5 blocks        spilled  20 blocks of 8 MiB
//         threads  blocks in four threads, which go on until the end; each is also counted in the file BOOK
//   HOW   return, exit, _exit, raw (the system call), quick, last (pthread_exit), abort, segv, overflow (of
//   the
//         stack), kill, term: ends so.    thread_kill: SIGKILL from another thread
//         exec     becomes true             again    becomes this program, which does the same work and
//         returns child    a child does the work and this process waits for it      early  the same, and does
//         not wait daemon   a grandchild in a session of its own does the work, and outlives all others
//         orphan   as early, but the child goes on until stdin is closed; it prints "left" when it is alone
//         holds    this process does the work, then a child sleeps until stdin is closed, and this one is
//         gone
#include <cuda.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

constexpr size_t kMiB = 1 << 20;
CUcontext context = nullptr;
std::atomic<unsigned long>* book = nullptr;

void check(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::printf("error %d\n", static_cast<int>(result));
  std::fflush(stdout);
}

CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr block = 0;
  check(cuMemAlloc(&block, bytes));
  return block;
}

void allocate_for_ever() {
  check(cuCtxSetCurrent(context));
  for (;;) {
    const CUdeviceptr block = allocate(1000);
    book->fetch_add(1);
    check(cuMemFree(block));
  }
}

// Goes on in the background, and returns when much has been counted.
void start_threads(const char* path) {
  constexpr int kThreads = 4;
  constexpr unsigned long kMany = 20'000;
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof *book) != 0) std::abort();
  book = static_cast<std::atomic<unsigned long>*>(
      mmap(nullptr, sizeof *book, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  for (int i = 0; i < kThreads; ++i) std::thread(allocate_for_ever).detach();
  while (book->load() < kMany) sched_yield();
}

void work(const std::string& what, const char* path) {
  CUdevice device = 0;
  check(cuInit(0));
  check(cuDeviceGet(&device, 0));
  check(cuDevicePrimaryCtxRetain(&context, device));
  check(cuCtxSetCurrent(context));
  CUdeviceptr block = 0;
  if (what == "served")
    for (int i = 0; i < 20; ++i) allocate(kMiB);
  if (what == "spilled")
    for (int i = 0; i < 20; ++i) allocate(8 * kMiB);
  if (what == "failed") allocate(size_t{1} << 40);
  if (what == "ordered") check(cuMemAllocAsync(&block, kMiB, nullptr));
  if (what == "managed")
    for (int i = 0; i < 5; ++i) check(cuMemAllocManaged(&block, kMiB, CU_MEM_ATTACH_GLOBAL));
  if (what == "threads") start_threads(path);
}

int overflow(volatile char* above, const volatile bool& goes_on) {
  volatile char here[4096];
  here[0] = *above;
  return goes_on ? overflow(here, goes_on) + here[1] : 0;
}

void end(const std::string& how, char** words) {
  const auto send = [](int number) {
    kill(getpid(), number);
    for (;;) pause();
  };
  if (how == "exit") std::exit(3);
  if (how == "_exit") _exit(4);
  if (how == "raw") syscall(SYS_exit_group, 5);
  if (how == "quick") std::quick_exit(6);
  if (how == "last") pthread_exit(nullptr);
  if (how == "abort") std::abort();
  if (how == "segv") {
    volatile int* volatile nowhere = nullptr;
    *nowhere = 1;
  }
  if (how == "kill") send(SIGKILL);
  if (how == "term") send(SIGTERM);
  if (how == "thread_kill") std::thread(send, SIGKILL).join();
  if (how == "overflow") {
    volatile char first = 0;
    const volatile bool for_ever = true;
    std::exit(overflow(&first, for_ever));
  }
  if (how == "exec") execlp("true", "true", nullptr);
  if (how == "again") execl(words[0], words[0], words[1], "return", nullptr);
}

void wait_for_stdin() {
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

// In the child of `parent`: returns when that is gone.
void wait_until_alone(pid_t parent) {
  while (getppid() == parent) usleep(1000);
}

// True: this process is the one that does the work.
bool is_worker(const std::string& how) {
  const pid_t self = getpid();
  if (how == "child") {
    const pid_t child = fork();
    if (child == 0) return true;
    int status = 0;
    waitpid(child, &status, 0);
    return false;
  }
  if (how == "early" || how == "orphan") {
    if (fork() != 0) return false;
    wait_until_alone(self);
    return true;
  }
  if (how == "daemon") {
    if (fork() != 0) return false;
    setsid();
    const pid_t middle = getpid();
    if (fork() != 0) _exit(0);
    wait_until_alone(middle);
    return true;
  }
  return true;
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 2;
  const std::string how = words[2];
  if (!is_worker(how)) return 0;
  const pid_t worker = getpid();
  work(words[1], count > 3 ? words[3] : "");
  if (how == "orphan" || (how == "holds" && fork() == 0)) {
    if (how == "holds") wait_until_alone(worker);
    std::printf("left\n");
    std::fflush(stdout);
    wait_for_stdin();
    _exit(0);
  }
  end(how, words);
  return 0;
}
