// Programs that end, shut themselves in, fork and use their descriptors in ways that a thread in their
// process could disturb, one each: guest WHAT. What each prints, and how it ends, must not depend on cupool
// being there. Some say "ready" and go on at the next line of stdin, so that a test can see the threads at
// work.
#include <cuda.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

#ifdef WIDE_THREAD_LOCALS
thread_local volatile char wide[WIDE_THREAD_LOCALS];
#endif

extern char** environ;

namespace {

constexpr size_t kBytes = 30 << 20;
CUcontext context = nullptr;

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::printf("%s: error %d\n", what, static_cast<int>(result));
  std::fflush(stdout);
  _exit(9);
}
#define MUST(call) must((call), #call)

CUdeviceptr block(size_t bytes) {
  CUdeviceptr p = 0;
  MUST(cuMemAlloc(&p, bytes));
  return p;
}

void pair() { MUST(cuMemFree(block(kBytes))); }

void begin() {
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  pair();
}

// By system calls that every filter of the programs below allows.
int say(const std::string& sentence) {
  const std::string line = sentence + "\n";
  return write(STDOUT_FILENO, line.data(), line.size()) < 0 ? 1 : 0;
}

void wait_for_line() {
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0 && byte != '\n') {
  }
}

void meet() {
  say("ready");
  wait_for_line();
}

template <typename F>
void for_each_name(const char* directory, F&& f) {
  DIR* const listing = opendir(directory);
  while (const dirent* const entry = readdir(listing)) {
    if (entry->d_name[0] != '.') f(std::string(entry->d_name), dirfd(listing));
  }
  closedir(listing);
}

// ---- Ends.

void* last_thread(void*) {
  MUST(cuCtxSetCurrent(context));
  pair();
  say("the last thread ends");
  return nullptr;
}

// The main function ends before another thread, which the C library lets call exit(0).
int main_ends(bool exports) {
  std::atexit([] { say("exit handlers run"); });
  begin();
  CUipcMemHandle handle;
  if (exports) MUST(cuIpcGetMemHandle(&handle, block(kBytes)));
  meet();
  pthread_t thread;
  pthread_create(&thread, nullptr, last_thread, nullptr);
  pthread_exit(nullptr);
}

int count_our_threads() {
  int count = 0;
  for_each_name("/proc/self/task", [&](const std::string& thread, int) {
    std::string name;
    std::getline(std::ifstream("/proc/self/task/" + thread + "/comm"), name);
    count += name.rfind("cupool", 0) == 0 ? 1 : 0;
  });
  return count;
}

// A thread that has ended may be listed for a moment.
void tell_our_threads() {
  for (int i = 0; i < 50 && count_our_threads() != 0; ++i) usleep(1000);
  say("threads beside the program's when the driver ends: " + std::to_string(count_our_threads()));
}

std::atomic<bool> is_standing{false};

// Work that never ends is pending, and there is idle memory on many devices, when the program ends.
int many_devices() {
  // Installed before the driver's handler, and so called after ours.
  std::atexit(tell_our_threads);
  MUST(cuInit(0));
  int count = 0;
  MUST(cuDeviceGetCount(&count));
  for (int device = 0; device < count; ++device) {
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    pair();
  }
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuLaunchHostFunc(
      stream,
      [](void*) {
        is_standing.store(true);
        for (;;) pause();
      },
      nullptr));
  // The driver's thread for it is made by this one.
  while (!is_standing.load()) cuStreamQuery(stream);
  meet();
  return 0;
}

int plain() {
#ifdef WIDE_THREAD_LOCALS
  wide[5] = 1;
#endif
  begin();
  meet();
  pair();
  return say("ends well");
}

// ---- Shuts itself in.

struct Named {
  const char* name;
  long number;
};
constexpr Named kCalls[] = {{"openat", SYS_openat},         {"fcntl", SYS_fcntl},
                            {"pread64", SYS_pread64},       {"pwrite64", SYS_pwrite64},
                            {"fstat", SYS_fstat},           {"futex", SYS_futex},
                            {"membarrier", SYS_membarrier}, {"rt_sigprocmask", SYS_rt_sigprocmask},
                            {"prctl", SYS_prctl},           {"nanosleep", SYS_nanosleep},
                            {"readlinkat", SYS_readlinkat}, {"close", SYS_close},
                            {"accept4", SYS_accept4},       {"getsockopt", SYS_getsockopt}};

bool forbid(const char* name) {
  const auto* const found = std::find_if(std::begin(kCalls), std::end(kCalls),
                                         [&](const Named& one) { return std::strcmp(one.name, name) == 0; });
  if (found == std::end(kCalls)) return false;
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(found->number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {4, steps};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

// One filter after the other, as in a container that has one already.
int filtered(char** names, int count, bool exports = false) {
  begin();
  CUipcMemHandle handle;
  if (exports) MUST(cuIpcGetMemHandle(&handle, block(kBytes)));
  meet();
  for (int i = 0; i < count; ++i) {
    if (!forbid(names[i])) return say("no filter");
  }
  say("shut in");
  wait_for_line();
  pair();
  return say("ends well");
}

// As programs do that take all from themselves in turn: the root, the descriptors, at last system calls.
int jailed(const char* root, const char* name) {
  begin();
  meet();
  const rlimit none = {0, 0};
  const bool is_shut = *root == '\0' ? setrlimit(RLIMIT_NOFILE, &none) == 0 : chroot(root) == 0;
  if (!is_shut) return say(std::strerror(errno));
  say("jailed");
  wait_for_line();
  if (!forbid(name)) return say("no filter");
  say("shut in");
  wait_for_line();
  pair();
  return say("ends well");
}

// The first device memory comes when the filter is there.
int filtered_early(const char* name) {
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  if (!forbid(name)) return say("no filter");
  pair();
  return say("ends well");
}

int without_capabilities() {
  begin();
  meet();
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capset, &header, none) != 0) return say("no capset");
  say("given up");
  wait_for_line();
  return say("ends well");
}

// The C library lets every thread become another user.
int another_user() {
  begin();
  meet();
  constexpr uid_t kNobody = 65534;
  if (setgid(kNobody) != 0 || setuid(kNobody) != 0) return say(std::strerror(errno));
  std::set<std::string> users;
  for_each_name("/proc/self/task", [&](const std::string& thread, int) {
    struct stat about;
    if (stat(("/proc/self/task/" + thread).c_str(), &about) == 0) users.insert(std::to_string(about.st_uid));
  });
  for (const std::string& user : users) say("user " + user);
  pair();
  return say("ends well");
}

int own_user_namespace() {
  begin();
  meet();
  const int result = unshare(CLONE_NEWUSER);
  say(result == 0 ? "a user namespace" : std::strerror(errno));
  pair();
  wait_for_line();
  return say("ends well");
}

// How many threads are where the calling one is not.
int count_elsewhere() {
  int elsewhere = 0;
  for (const char* const place : {"ns/mnt", "ns/net", "ns/ipc", "ns/uts", "ns/user", "ns/cgroup", "cwd"}) {
    const auto target = [&](const std::string& thread) {
      std::array<char, 256> text{};
      return readlink(("/proc/self/task/" + thread + "/" + place).c_str(), text.data(), text.size() - 1) < 0
                 ? std::string()
                 : std::string(text.data());
    };
    const std::string here = target(std::to_string(getpid()));
    for_each_name("/proc/self/task", [&](const std::string& thread, int) {
      const std::string there = target(thread);
      if (!there.empty() && there != here) ++elsewhere;
    });
  }
  return elsewhere;
}

// Goes to another place, where nothing of the process may stay behind.
int leaves(int kinds) {
  begin();
  meet();
  say(unshare(kinds) == 0 ? "left" : std::strerror(errno));
  if (chdir("/proc") != 0) return 1;
  wait_for_line();
  // A thread that has ended may be listed for a moment.
  for (int i = 0; i < 50 && count_elsewhere() != 0; ++i) usleep(1000);
  say("threads elsewhere: " + std::to_string(count_elsewhere()));
  pair();
  return say("ends well");
}

int enters_mounts() {
  begin();
  meet();
  const int there = open("/proc/self/ns/mnt", O_RDONLY);
  say(setns(there, CLONE_NEWNS) == 0 ? "entered" : std::strerror(errno));
  pair();
  return say("ends well");
}

// ---- Descriptors.

// Each open() gets the lowest number, and dup2() a number that nobody else has.
int own_numbers(int turns) {
  begin();
  meet();
  const int source = open("/dev/null", O_RDONLY);
  const int low = source + 1;
  int wrong = 0;
  struct stat null;
  stat("/dev/null", &null);
  for (int i = 0; i < turns; ++i) {
    const int opened = open("/dev/null", O_RDONLY);
    if (opened != low) ++wrong;
    close(opened);
    struct stat about;
    if (dup2(source, low) != low || fstat(low, &about) != 0 || about.st_rdev != null.st_rdev) ++wrong;
    close(low);
  }
  return say("wrong numbers: " + std::to_string(wrong));
}

int closes_everything() {
  begin();
  for (int number = 3; number < 4096; ++number) close(number);
  meet();
  return say("ends well");
}

using Descriptors = std::set<std::string>;

Descriptors descriptors() {
  Descriptors all;
  for_each_name("/proc/self/fd", [&](const std::string& number, int own) {
    if (number != std::to_string(own)) all.insert(number);
  });
  return all;
}

// The driver has descriptors of what it has opened, but no sockets.
Descriptors sockets() {
  Descriptors all;
  for (const std::string& number : descriptors()) {
    std::array<char, 64> target{};
    if (readlink(("/proc/self/fd/" + number).c_str(), target.data(), target.size() - 1) > 0 &&
        std::strncmp(target.data(), "socket:", 7) == 0)
      all.insert(number);
  }
  return all;
}

// How many fork children have a descriptor that the process had not at first.
int children_with_more(Descriptors (*look)(), const Descriptors& before, int forks) {
  int with_more = 0;
  for (int i = 0; i < forks; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const Descriptors now = look();
      _exit(std::includes(before.begin(), before.end(), now.begin(), now.end()) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) ++with_more;
  }
  return with_more;
}

std::string text_of(const CUipcMemHandle& handle) {
  std::string text;
  for (const char byte : handle.reserved) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

CUipcMemHandle handle_of(const char* text) {
  CUipcMemHandle handle;
  for (char& byte : handle.reserved) {
    unsigned value = 0;
    std::sscanf(text, "%2x", &value);
    byte = static_cast<char>(value);
    text += 2;
  }
  return handle;
}

std::atomic<bool> is_over{false};

// Forks while another process opens and closes its memory again and again.
int forks_and_lends(const char* self, int forks) {
  begin();
  const Descriptors before = descriptors();
  CUipcMemHandle handle;
  MUST(cuIpcGetMemHandle(&handle, block(kBytes)));
  MUST(cuCtxSynchronize());
  std::string text = text_of(handle);
  std::string count = std::to_string(forks);
  std::array<char*, 5> words = {const_cast<char*>(self), const_cast<char*>("borrow"), text.data(),
                                count.data(), nullptr};
  pid_t borrower = 0;
  if (posix_spawn(&borrower, self, nullptr, nullptr, words.data(), environ) != 0) return 1;
  int with_more = 0;
  int status = 0;
  while (waitpid(borrower, &status, WNOHANG) == 0) with_more += children_with_more(descriptors, before, 10);
  say("children with a descriptor of the lender's: " + std::to_string(with_more));
  return status;
}

void* borrow(void* text) {
  MUST(cuCtxSetCurrent(context));
  const CUipcMemHandle handle = handle_of(static_cast<const char*>(text));
  while (!is_over.load()) {
    CUdeviceptr p = 0;
    MUST(cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(cuIpcCloseMemHandle(p));
  }
  return nullptr;
}

// The other process, which forks as well.
int forks_and_borrows(char* text, int forks) {
  begin();
  const Descriptors before = sockets();
  pthread_t thread;
  pthread_create(&thread, nullptr, borrow, text);
  const int with_more = children_with_more(sockets, before, forks);
  is_over.store(true);
  pthread_join(thread, nullptr);
  return say("children with a socket of the borrower's: " + std::to_string(with_more));
}

// ---- Other processes and signals.

// A daemon that forks twice, closes everything and uses the device only then, or has used it before.
int becomes_daemon(bool uses_before) {
  constexpr int kReport = 600;
  int report[2];
  if (uses_before) begin();
  if (pipe(report) != 0 || dup2(report[1], kReport) != kReport) return 2;
  close(report[1]);
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    for (int number = 0; number < kReport; ++number) close(number);
    for (int number = 0; number < 3; ++number) open("/dev/null", O_RDWR);
    if (!uses_before) begin();
    const std::string text = "the next number is " + std::to_string(open("/dev/null", O_RDONLY)) + "\n";
    if (write(kReport, text.data(), text.size()) < 0) _exit(2);
    exit(0);
  }
  close(kReport);
  waitpid(child, nullptr, 0);
  char text[100] = "";
  for (ssize_t used = 0, got; (got = read(report[0], text + used, sizeof text - 1 - used)) > 0;) used += got;
  std::printf("%s", text);
  return 0;
}

int ended(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

// Children that have the memory of this process until they are another program, or end.
int spawns() {
  begin();
  int codes = 0;
  for (int i = 0; i < 20; ++i) {
    const pid_t borrower = vfork();
    if (borrower == 0) {
      execl("/nonexistent", "nonexistent", nullptr);
      _exit(7);
    }
    codes += ended(borrower);
    pid_t other = 0;
    char name[] = "false";
    char* const call[] = {name, nullptr};
    if (posix_spawnp(&other, name, nullptr, nullptr, call, environ) == 0) codes += ended(other);
  }
  pair();
  say("codes " + std::to_string(codes));
  return 0;
}

volatile sig_atomic_t ticks = 0;
sigjmp_buf after_fault;

// Recovers from faults of its own, and is interrupted all the time.
int handles_signals() {
  begin();
  struct sigaction own = {};
  own.sa_handler = [](int) { ticks = ticks + 1; };
  for (const int one : {SIGALRM, SIGPROF}) sigaction(one, &own, nullptr);
  own.sa_handler = [](int) { siglongjmp(after_fault, 1); };
  sigaction(SIGSEGV, &own, nullptr);
  const itimerval often = {{0, 1000}, {0, 1000}};
  for (const int kind : {ITIMER_REAL, ITIMER_PROF}) setitimer(kind, &often, nullptr);
  int faults = 0;
  while (ticks < 100) {
    pair();
    if (sigsetjmp(after_fault, 1) != 0) {
      ++faults;
    } else if (faults < 100) {
      raise(SIGSEGV);
    }
  }
  const itimerval never = {};
  for (const int kind : {ITIMER_REAL, ITIMER_PROF}) setitimer(kind, &never, nullptr);
  say("faults " + std::to_string(std::min(faults, 100)));
  for (int number = 1; number < SIGRTMIN; ++number) {
    struct sigaction now = {};
    if (sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_DFL)
      say("signal " + std::to_string(number) + " has a handler");
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  if (what == "main-ends") return main_ends(false);
  if (what == "main-ends-exported") return main_ends(true);
  if (what == "plain") return plain();
  if (what == "devices") return many_devices();
  if (what == "filtered") return filtered(words + 2, count - 2);
  if (what == "filtered-exported") return filtered(words + 2, count - 2, true);
  if (what == "jailed" && count > 3) return jailed(words[2], words[3]);
  if (what == "leaves" && count > 2) return leaves(std::atoi(words[2]));
  if (what == "enters") return enters_mounts();
  if (what == "filtered-early" && count > 2) return filtered_early(words[2]);
  if (what == "capabilities") return without_capabilities();
  if (what == "user") return another_user();
  if (what == "namespace") return own_user_namespace();
  if (what == "numbers" && count > 2) return own_numbers(std::atoi(words[2]));
  if (what == "closes") return closes_everything();
  if (what == "daemon") return becomes_daemon(count > 2);
  if (what == "spawns") return spawns();
  if (what == "handlers") return handles_signals();
  if (what == "lend" && count > 2) return forks_and_lends(words[0], std::atoi(words[2]));
  if (what == "borrow" && count > 3) return forks_and_borrows(words[2], std::atoi(words[3]));
  return 2;
}
