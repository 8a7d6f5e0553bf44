// What the torture victim asks of a driver: calls by their linked names, and those of the per-thread default
// stream by dlsym, which is how a program compiled for it comes by them. Also its options and its one way to
// give up. Holds no state but the options, which main() sets before any thread starts.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace torture {

using Random = std::mt19937_64;
inline std::uint64_t below(Random& random, std::uint64_t limit) { return random() % limit; }
inline bool one_in(Random& random, std::uint64_t n) { return below(random, n) == 0; }

// Parts of the program that can be left out, by name on the command line.
enum Feature : unsigned {
  kStreams = 1,     // more than the legacy stream
  kPerThread = 2,   // per-thread default streams, by handle and by _ptsz entry points
  kDestroy = 4,     // streams destroyed with work queued, handles that come back
  kHandOver = 8,    // pointers passed between threads
  kGraphs = 16,     // captures in all modes, graph launches
  kPooled = 32,     // cuMemAllocAsync and cuMemFreeAsync
  kCopies = 64,     // copies and memsets, synchronous ones too
  kWaits = 128,     // the program's own waits and queries
  kHost = 256,      // host functions
  kChildren = 512,  // short-lived threads
  kContexts = 1024,
  kResets = 2048,
  kPhases = 4096,     // the context is given up and taken again between phases
  kCrash = 8192,      // a kernel that touches nobody's memory, after which the context is of no use
  kManaged = 16384,   // managed memory, written by the host as soon as it is allocated
  kWords = 32768,     // streams that wait for words which later work writes
  kAwaits = 65536,    // kernels and host functions that wait for the host
  kRude = 131072,     // frees and waits of other threads meanwhile
  kBeside = 262144,   // records and stream-ordered frees beside graph launches into the same stream
  kAbandon = 524288,  // threads that end with work in their default stream
  kPeers = 1048576,   // two devices, each with work on the other's memory
  kMeets = 2097152,   // kernels of two devices that wait for each other, as those of a collective do
  kApart = 4194304,   // but copies, no work on the other's memory
};
inline constexpr unsigned kUsual = kContexts - 1;

struct Options {
  std::uint64_t seed = 1;
  unsigned threads = 4;
  std::uint64_t operations = 300;  // of each thread, in all phases together
  double seconds = 0;              // if not 0: until then instead
  std::uint64_t most_bytes = std::uint64_t{64} << 20;
  std::uint64_t live_bytes = std::uint64_t{256} << 20;  // of each thread
  unsigned features = kUsual;
  bool tolerant = false;
  bool has(Feature feature) const { return (features & feature) != 0; }
  bool has_any(unsigned some) const { return (features & some) != 0; }
};
inline Options options;

// The driver refused something that a valid program may ask. A tolerant thread ends its work here.
struct Stop {
  const char* what;
  CUresult result;
};

inline void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  if (options.tolerant) throw Stop{what, result};
  std::fprintf(stderr, "torture: %s: driver error %d\n", what, static_cast<int>(result));
  std::_Exit(2);
}
#define MUST(call) ::torture::must((call), #call)

// One call in both its forms.
template <typename F>
struct Both {
  F plain;
  F per_thread;
};

// X(symbol, suffix of the per-thread form)
#define TORTURE_BOTH(X)            \
  X(cuLaunchKernel, "_ptsz")       \
  X(cuMemsetD8Async, "_ptsz")      \
  X(cuMemcpyDtoDAsync_v2, "_ptsz") \
  X(cuMemcpyPeerAsync, "_ptsz")    \
  X(cuEventRecord, "_ptsz")        \
  X(cuStreamWaitEvent, "_ptsz")    \
  X(cuStreamSynchronize, "_ptsz")  \
  X(cuStreamQuery, "_ptsz")        \
  X(cuMemAllocAsync, "_ptsz")      \
  X(cuMemFreeAsync, "_ptsz")       \
  X(cuGraphLaunch, "_ptsz")        \
  X(cuLaunchHostFunc, "_ptsz")     \
  X(cuMemsetD8_v2, "_ptds")        \
  X(cuMemcpyDtoD_v2, "_ptds")      \
  X(cuMemcpyHtoD_v2, "_ptds")      \
  X(cuMemcpyDtoH_v2, "_ptds")

struct Api {
#define TORTURE_MEMBER(symbol, suffix) Both<decltype(&::symbol)> symbol;
  TORTURE_BOTH(TORTURE_MEMBER)
#undef TORTURE_MEMBER

  Api() {
#define TORTURE_LOAD(symbol, suffix)                                                                 \
  symbol.plain = &::symbol;                                                                          \
  symbol.per_thread = reinterpret_cast<decltype(symbol.plain)>(dlsym(RTLD_DEFAULT, #symbol suffix)); \
  if (symbol.per_thread == nullptr) {                                                                \
    std::fprintf(stderr, "torture: no %s%s in this driver\n", #symbol, suffix);                      \
    std::_Exit(2);                                                                                   \
  }
    TORTURE_BOTH(TORTURE_LOAD)
#undef TORTURE_LOAD
  }
};

}  // namespace torture
