// What all threads of the torture victim share: the context with its kernels and verdict word, the streams,
// the gates, the mailboxes through which blocks change hands. A World lives as long as one phase.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "torture_history.hpp"
#include "torture_streams.hpp"

namespace torture {

// Memory the program holds, all bytes of one value, and where its latest work went.
struct Block {
  CUdeviceptr p = 0;
  std::uint64_t bytes = 0;
  unsigned value = 0;
  bool pooled = false;  // from cuMemAllocAsync
  bool managed = false;
  Mark writer;  // work that writes comes after it and after all readers, work that reads after it
  std::vector<Mark> readers;
  CUgraphExec graph = nullptr;  // fills with `graph_value` and checks
  unsigned graph_value = 0;
};

// The kernels of one context, and their verdict.
class Kernels {
 public:
  explicit Kernels(const Api& api) : api_(api) {}
  // Loads them into the current context and runs each once, so that no capture meets a first use.
  void load();
  void fill(CUdeviceptr p, std::uint64_t bytes, unsigned value, const Lease& lease) const;
  void check(CUdeviceptr p, std::uint64_t bytes, unsigned value, const Lease& lease) const;
  void spin(unsigned long long ns, const Lease& lease) const;
  void await(CUdeviceptr word, unsigned value, const Lease& lease) const;
  // Waits for everything and reads how many bytes were wrong; none: the driver would not say.
  std::optional<unsigned long long> verdict() const;
  // The same of what has run by now; in host memory, so that asking costs nothing and all can stop at once.
  unsigned long long wrong_so_far() const { return __atomic_load_n(&told_->wrong, __ATOMIC_ACQUIRE); }
  // What a wrong byte was like. pre: there is one.
  CUdeviceptr tell_first() const;

 private:
  void launch(CUfunction function, std::uint64_t bytes, void** parameters, const Lease& lease) const;

  const Api& api_;
  CUfunction fill_ = nullptr, check_ = nullptr, spin_ = nullptr, await_ = nullptr;
  struct Verdict {  // as the kernel `check` writes it
    unsigned long long wrong, where, found, expected;
    unsigned long long scratch;
  };
  Verdict* told_ = nullptr;
  CUdeviceptr verdict_ = 0;
};

struct Mailbox {
  std::mutex mutex;
  std::deque<Block> blocks;
};

struct Tally {
  std::atomic<unsigned long> operations{0}, allocations{0}, frees{0}, graphs{0}, full{0}, stopped{0};
  std::atomic<unsigned long> wrong{0};  // seen by the host
};

struct World {
  World(const Api& a, Tally& t, unsigned threads)
      : api(a), tally(t), streams(a, gates), kernels(a), mailboxes(threads), history(threads) {}

  const Api& api;
  Tally& tally;
  Gates gates;
  Streams streams;
  Kernels kernels;
  CUcontext context = nullptr;
  CUdevice device = 0;
  std::deque<Mailbox> mailboxes;
  History history;
};

}  // namespace torture
