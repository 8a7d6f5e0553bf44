// What the cases of `waits` share: a device with its kernels and verdict, words that a stream, a kernel or
// the host waits for, and the way to say that something was wrong. Each case is a valid program that ends on
// the bare driver: whatever waits is released by something submitted later, and no free and no
// synchronisation comes in between that the driver would make wait for it.
#pragma once

#include <cuda.h>
#include <semaphore.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace waits {

[[noreturn]] inline void die(const char* what, int code) {
  std::fprintf(stderr, "waits: %s: %d\n", what, code);
  std::_Exit(2);
}
#define MUST(call)                                                                       \
  do {                                                                                   \
    const CUresult must_result_ = (call);                                                \
    if (must_result_ != CUDA_SUCCESS) waits::die(#call, static_cast<int>(must_result_)); \
  } while (0)

inline constexpr int kSkipped = 77;
[[noreturn]] inline void skip(const char* why) {
  std::printf("waits: skipped: %s\n", why);
  std::fflush(stdout);
  std::_Exit(kSkipped);
}

inline constexpr size_t kKiB = 1024;
inline constexpr size_t kMiB = 1024 * kKiB;
inline constexpr unsigned long long kLongNs = 100'000'000;  // longer than a handful of driver calls

// Of what the device has free.
inline size_t sixteenth() {
  size_t room = 0;
  MUST(cuMemGetInfo(&room, nullptr));
  return room / 16 / (2 * kMiB) * (2 * kMiB);
}

// Until then, but not for long. Beside other work each of so many turns takes that one's time slice: then the
// clock ends it.
template <typename IsThere>
void wait_a_while(IsThere&& is_there) {
  constexpr int kMostTurns = 10'000;
  constexpr std::chrono::milliseconds kMost{200};
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kMostTurns && !is_there() && std::chrono::steady_clock::now() - begin < kMost; ++i)
    std::this_thread::yield();
}

// One context with the kernels loaded and run once, so that none is loaded while something waits.
class Device {
 public:
  // The primary context of a device, or one more of its own.
  explicit Device(int ordinal = 0, bool own_context = false);

  void enter() const { MUST(cuCtxSetCurrent(context_)); }
  CUcontext context() const { return context_; }

  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) const;
  CUdeviceptr alloc(size_t bytes) const;
  void free(CUdeviceptr p) const { MUST(cuMemFree(p)); }

  void fill(CUdeviceptr p, size_t bytes, unsigned value, CUstream stream) const;
  void check(CUdeviceptr p, size_t bytes, unsigned value, CUstream stream) const;
  void spin(unsigned long long ns, CUstream stream) const;
  void await(CUdeviceptr word, unsigned value, CUstream stream) const;
  // Fills and checks: a life's work.
  void use(CUdeviceptr p, size_t bytes, unsigned value, CUstream stream) const;
  // A fill that may begin before what precedes it in its stream has ended.
  void fill_programmatic(CUdeviceptr p, size_t bytes, unsigned value, CUstream stream) const;

  // Memory that was used on these streams and freed with the work queued, as far as a pool lets it.
  void live_and_die(size_t bytes, const std::vector<CUstream>& streams) const;

  // Waits for everything; 1 when a byte was wrong.
  int finish() const;

 private:
  void launch(CUfunction function, size_t bytes, void** parameters, CUstream stream) const;

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUfunction fill_ = nullptr, check_ = nullptr, spin_ = nullptr, await_ = nullptr;
  CUdeviceptr errors_ = 0;
};

// Eight bytes of pinned memory that every device and the host can reach; zero at first.
class Word {
 public:
  Word();
  CUdeviceptr address() const { return address_; }

  void wait_on(CUstream stream, unsigned value = 1) const {
    MUST(cuStreamWaitValue32(stream, address_, value, CU_STREAM_WAIT_VALUE_EQ));
  }
  void write_on(CUstream stream, unsigned value = 1) const {
    MUST(cuStreamWriteValue32(stream, address_, value, CU_STREAM_WRITE_VALUE_DEFAULT));
  }
  // By the host.
  void set(unsigned value) const { __atomic_store_n(host_, value, __ATOMIC_SEQ_CST); }
  unsigned get() const { return __atomic_load_n(host_, __ATOMIC_SEQ_CST); }

 private:
  unsigned* host_ = nullptr;
  CUdeviceptr address_ = 0;
};

// By which threads take turns, so that each run is the same one.
class Semaphore {
 public:
  Semaphore() { sem_init(&semaphore_, 0, 0); }
  void post() { sem_post(&semaphore_); }
  void wait() { sem_wait(&semaphore_); }

 private:
  sem_t semaphore_;
};

// Where two contexts of a program are: on one device, on two, or on two with access to each other's memory.
enum class Places { kContexts, kDevices, kPeers };

// Two contexts, one for each rank of a program. Skips the case where there is one device and it needs two.
class Pair {
 public:
  explicit Pair(Places places);
  const Device& operator[](unsigned rank) const { return rank == 0 ? first_ : second_; }
  int finish() const { return first_.finish() + second_.finish() != 0 ? 1 : 0; }

 private:
  int ordinal_;  // of the second one's device
  Device first_, second_;
};

// Lets kernels and copies of the guest touch all memory of the owner; skips the case where devices cannot.
void let_in(const Device& guest, const Device& owner);

struct Case {
  std::string name;
  std::function<int()> run;  // 0: all was right
};
using Cases = std::vector<Case>;

Cases memory_cases();   // what allocation, and its kin, must not wait for
Cases ordered_cases();  // frees in the order of a stream, or while one captures
Cases program_cases();  // who waits for whom
Cases thread_cases();   // several threads, contexts, devices
Cases peer_cases();     // two ranks, and memory of one that the other may access
Cases queue_cases();    // a launch that stands in a full queue
Cases leaving_cases();  // memory that leaves the order of the device: its old life must be over

// `waits import IN OUT`: the second process of the cases that share memory.
int import(int in, int out);

}  // namespace waits
