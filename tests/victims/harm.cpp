// Programs that are fine without cupool and were once harmed by it, one each: harm WHAT. What each prints,
// and how it ends, must not depend on cupool being there.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

CUcontext context = nullptr;

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::printf("%s: error %d\n", what, static_cast<int>(result));
  std::fflush(stdout);
  _exit(9);
}
#define MUST(call) must((call), #call)

void begin() {
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
}

CUdeviceptr block(size_t bytes) {
  CUdeviceptr p = 0;
  MUST(cuMemAlloc(&p, bytes));
  return p;
}

void pair(size_t bytes) { MUST(cuMemFree(block(bytes))); }

int say(const char* sentence) {
  std::puts(sentence);
  std::fflush(stdout);
  return 0;
}

// ---- Descriptors.

// The reader of stderr is gone before the program ends.
int lost_reader() {
  begin();
  pair(1000);
  int ends[2];
  if (pipe(ends) != 0) return 1;
  dup2(ends[1], STDERR_FILENO);
  close(ends[0]);
  close(ends[1]);
  return say("ends well");
}

// The same with a stderr that was such a pipe from the start (the test closes its end).
int wait_for_end_of_reader() {
  begin();
  pair(1000);
  say("ready");
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return say("ends well");
}

// Descriptor 2 becomes a data file, before or after the first use of CUDA.
int data_file(const char* path, bool early) {
  if (!early) begin();
  close(STDERR_FILENO);
  if (open(path, O_RDWR | O_CREAT | O_TRUNC, 0600) != STDERR_FILENO) return 1;
  if (early) begin();
  pair(1000);
  if (write(STDERR_FILENO, "data", 4) != 4) return 1;
  return say("wrote 4 bytes");
}

// ---- Names.

int new_title(char** arguments) {
  std::memset(arguments[0], 'X', std::strlen(arguments[0]));
  begin();
  pair(1000);
  return say("renamed");
}

// ---- Signals.

void paint(char* room, size_t size) { std::memset(room, 0x5A, size); }
size_t depth(const char* room, size_t size) {
  size_t i = 0;
  while (i < size && room[i] == 0x5A) ++i;
  return size - i;
}

void nothing(int) {}

// How deep a handler of ours goes on an alternate stack, beyond what the kernel itself puts there.
int small_signal_stack() {
  begin();
  pair(1000);
  constexpr size_t kBytes = 64 * 1024;
  auto* const room =
      static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  stack_t stack = {};
  stack.ss_sp = room;
  stack.ss_size = kBytes;
  sigaltstack(&stack, nullptr);
  struct sigaction plain = {};
  plain.sa_handler = nothing;
  plain.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &plain, nullptr);
  paint(room, kBytes);
  raise(SIGUSR1);
  const size_t kernel = depth(room, kBytes);
  struct sigaction theirs = {};
  sigaction(SIGUSR2, nullptr, &theirs);
  if (theirs.sa_handler == SIG_DFL) sigaction(SIGUSR2, &plain, nullptr);
  paint(room, kBytes);
  raise(SIGUSR2);
  const size_t all = depth(room, kBytes);
  if (all > kernel + 1024) std::printf("%zu bytes deeper than the kernel's %zu\n", all - kernel, kernel);
  return say("at most 1 KiB of stack");
}

// Calls `run` with no more than so many bytes of this thread's stack left.
[[gnu::noinline]] void with_stack_left(size_t bytes, void (*run)(int), int number) {
  pthread_attr_t attributes;
  void* lowest = nullptr;
  size_t size = 0;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &lowest, &size);
  const auto here = reinterpret_cast<char*>(__builtin_frame_address(0));
  const size_t left = static_cast<size_t>(here - static_cast<char*>(lowest));
  volatile char* const used = static_cast<char*>(__builtin_alloca(left - bytes));
  used[0] = 1;
  run(number);
  used[0] = 2;
}

void raise_here(int number) {
  pair(1000);
  pair(3 << 20);
  raise(number);
}

struct SmallThread {
  size_t bytes;
  int number;
};
void* run_small_thread(void* argument) {
  const auto& about = *static_cast<const SmallThread*>(argument);
  MUST(cuCtxSetCurrent(context));
  with_stack_left(about.bytes, raise_here, about.number);
  return nullptr;
}

// A signal that ends the process or asks for a report, on a thread with so little stack.
int small_thread_stack(int number, size_t bytes) {
  begin();
  pair(1000);
  struct sigaction theirs = {};
  sigaction(SIGUSR2, nullptr, &theirs);
  if (theirs.sa_handler == SIG_DFL) signal(SIGUSR2, nothing);
  SmallThread about{bytes, number};
  pthread_t thread;
  if (pthread_create(&thread, nullptr, run_small_thread, &about) != 0) return 1;
  pthread_join(thread, nullptr);
  return say("goes on");
}

void exit_now(int) { std::exit(3); }

// exit() from a handler that interrupts allocations.
int exit_in_handler(unsigned microseconds) {
  begin();
  signal(SIGALRM, exit_now);
  std::vector<CUdeviceptr> blocks(64);
  for (size_t i = 0;; ++i) {
    // The driver is asked for what the loop needs before: if it is interrupted while the C library gives it
    // memory, that library ends the process.
    if (i == 20 * blocks.size()) ualarm(microseconds, 0);
    CUdeviceptr& one = blocks[i % blocks.size()];
    if (one != 0) cuMemFree(one);
    one = 0;
    cuMemAlloc(&one, size_t{512} << (i % 14));
  }
}

// ---- Ends while others are at work.

constexpr int kBusyThreads = 3;
std::atomic<int> busy{0};

void* allocate_for_ever(void*) {
  cuCtxSetCurrent(context);
  std::vector<CUdeviceptr> blocks(32);
  for (size_t i = 0;; ++i) {
    CUdeviceptr& one = blocks[i % blocks.size()];
    if (one != 0) cuMemFree(one);
    one = 0;
    cuMemAlloc(&one, size_t{512} << (i % 14));
    if (i == blocks.size()) ++busy;
  }
}

void start_busy_threads() {
  for (int i = 0; i < kBusyThreads; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, allocate_for_ever, nullptr) != 0) _exit(9);
  }
  while (busy.load() < kBusyThreads) sched_yield();
}

// exit() while other threads allocate.
int exit_amid_allocations() {
  begin();
  start_busy_threads();
  say("ends well");
  std::exit(3);
}

pthread_barrier_t all_there;
void* exit_with_others(void*) {
  cuCtxSetCurrent(context);
  for (int i = 0; i < 50; ++i) pair(1000 + 700 * i);
  pthread_barrier_wait(&all_there);
  std::exit(3);
}

// Several threads call exit() at once.
int exit_at_once() {
  begin();
  say("ends well");
  pthread_barrier_init(&all_there, nullptr, kBusyThreads + 1);
  for (int i = 0; i < kBusyThreads; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, exit_with_others, nullptr) != 0) _exit(9);
  }
  exit_with_others(nullptr);
  return 0;
}

// ---- Nothing left.

std::atomic<int> foreign{0};
void own_destructor(void* value) {
  if (std::strcmp(static_cast<const char*>(value), "mine") != 0) ++foreign;
}
void* use_key(void* key) {
  pthread_setspecific(*static_cast<pthread_key_t*>(key), "mine");
  MUST(cuCtxSetCurrent(context));
  for (int i = 0; i < 100; ++i) pair(1000 + 700 * i);
  return nullptr;
}

// All keys are taken before CUDA is used, the first of them by a value of the program's.
int no_keys() {
  std::vector<pthread_key_t> keys;
  pthread_key_t key = 0;
  while (pthread_key_create(&key, own_destructor) == 0) keys.push_back(key);
  begin();
  for (int i = 0; i < 50; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, use_key, &keys[0]) != 0) return 1;
    pthread_join(thread, nullptr);
  }
  std::printf("foreign values %d\n", foreign.load());
  return say("keys are the program's");
}

pthread_key_t late_key;
thread_local int turns = 0;
// Again and again until the last turn that there is, and CUDA in each.
void late_destructor(void* value) {
  CUdeviceptr p = 0;
  if (cuCtxSetCurrent(context) == CUDA_SUCCESS && cuMemAlloc(&p, 24 << 20) == CUDA_SUCCESS) cuMemFree(p);
  if (cuMemAlloc(&p, 100'000) == CUDA_SUCCESS) cuMemFree(p);
  if (++turns < 8) pthread_setspecific(late_key, value);
}
void* end_late(void*) {
  pthread_setspecific(late_key, &late_key);
  MUST(cuCtxSetCurrent(context));
  pair(24 << 20);
  return nullptr;
}

// Of the process, as the kernel counts them.
long pages_of_data() {
  long pages = 0;
  FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
  std::fclose(file);
  return pages;
}

// Threads whose destructors use CUDA after ours have run: nothing of it may be lost.
int late_destructors() {
  begin();
  pair(1000);
  // After any key of a library: its destructor comes last in every turn.
  pthread_key_create(&late_key, late_destructor);
  long before = 0;
  for (int i = 0; i < 1100; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, end_late, nullptr) != 0) return 1;
    pthread_join(thread, nullptr);
    if (i == 600) before = pages_of_data();
  }
  // Half a KiB a thread at most.
  if ((pages_of_data() - before) * sysconf(_SC_PAGESIZE) > 250 * 1024) say("the host's memory grew");
  pair(size_t{3} << 30);
  return say("all of it is back");
}

// A limit on the size of files, smaller than any report.
int small_files() {
  begin();
  pair(1000);
  const rlimit limit{100, 100};
  setrlimit(RLIMIT_FSIZE, &limit);
  return say("ends well");
}

int no_descriptors() {
  begin();
  pair(1000);
  while (dup(STDIN_FILENO) >= 0) {
  }
  return say("ends well");
}

void* allocate_until_cancelled(void*) {
  cuCtxSetCurrent(context);
  for (size_t i = 0;; ++i) {
    CUdeviceptr p = 0;
    if (cuMemAlloc(&p, (size_t{1} << 20) + (i % 40) * 500'000) == CUDA_SUCCESS) cuMemFree(p);
    if (i % 64 == 0) cuCtxSynchronize();
    pthread_testcancel();
  }
}

// Threads are cancelled while they allocate; the others go on.
int cancelled_threads() {
  begin();
  for (int i = 0; i < 200; ++i) {
    pthread_t threads[3];
    for (pthread_t& thread : threads) {
      if (pthread_create(&thread, nullptr, allocate_until_cancelled, nullptr) != 0) return 1;
    }
    usleep(300);
    for (const pthread_t thread : threads) pthread_cancel(thread);
    for (const pthread_t thread : threads) pthread_join(thread, nullptr);
    pair(3 << 20);
  }
  return say("goes on");
}

// The test's malloc and mmap say no to the library from now on.
int no_host_memory() {
  begin();
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 200; ++i) blocks.push_back(block(size_t{1000} * (i + 1)));
  if (const auto refuse = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "refuse_memory"))) refuse();
  int odd = 0;
  for (int round = 0; round < 20; ++round) {
    for (CUdeviceptr& one : blocks) {
      if (one != 0 && cuMemFree(one) != CUDA_SUCCESS) ++odd;
      one = 0;
      CUdeviceptr managed = 0;
      if (cuMemAllocManaged(&managed, 5000 + static_cast<size_t>(round), CU_MEM_ATTACH_GLOBAL) ==
              CUDA_SUCCESS &&
          cuMemFree(managed) != CUDA_SUCCESS)
        ++odd;
      const CUresult result = cuMemAlloc(&one, size_t{1} << (9 + (round + &one - blocks.data()) % 16));
      if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY) ++odd;
    }
  }
  std::printf("odd answers %d\n", odd);
  return say("ends well");
}

// ---- Rights.

int tell_rights() {
  std::printf("secure %d\n", getauxval(AT_SECURE) != 0 ? 1 : 0);
  begin();
  pair(1000);
  return say("ends well");
}

int act(int count, char** arguments) {
  const std::string what = count > 1 ? arguments[1] : "";
  if (what == "lost-reader") return lost_reader();
  if (what == "wait") return wait_for_end_of_reader();
  if (what == "data-file" && count > 2) return data_file(arguments[2], false);
  if (what == "early-data-file" && count > 2) return data_file(arguments[2], true);
  if (what == "title") return new_title(arguments);
  if (what == "signal-stack") return small_signal_stack();
  if (what == "thread-stack" && count > 3)
    return small_thread_stack(std::atoi(arguments[2]), static_cast<size_t>(std::atol(arguments[3])));
  if (what == "exit-in-handler" && count > 2)
    return exit_in_handler(static_cast<unsigned>(std::atoi(arguments[2])));
  if (what == "exit-amid") return exit_amid_allocations();
  if (what == "exit-at-once") return exit_at_once();
  if (what == "no-keys") return no_keys();
  if (what == "late") return late_destructors();
  if (what == "small-files") return small_files();
  if (what == "no-descriptors") return no_descriptors();
  if (what == "cancel") return cancelled_threads();
  if (what == "no-memory") return no_host_memory();
  if (what == "rights") return tell_rights();
  return 2;
}

}  // namespace

int main(int count, char** arguments) { return act(count, arguments); }
