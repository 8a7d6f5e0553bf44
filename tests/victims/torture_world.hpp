// What the threads of the torture victim share. Of a device: the context with its kernels and verdict word,
// the streams. Of all: the gates, the mailboxes through which blocks change hands, the meetings of devices.
// All of it lives as long as one phase.
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
  unsigned value = 0;   // 0x100: nothing was written yet
  unsigned place = 0;   // the number of the world whose memory it is
  unsigned turns = 0;   // what its marks lead to may wait for so many turns of either device (Meetings)
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

// Two ranks, the first thread of each device, make turns: in each, a kernel says that its device has come and
// another waits for the other's. As in every valid collective, nobody waits for ever: what a device is given
// waits for turns that it has made, so of two ranks the one that is behind can always go on. Where there are
// turns, therefore, a block goes to the other device only once that has made as many, and is freed at home.
class Meetings {
 public:
  // In the current context.
  void prepare();
  // The next turn of a rank; none: it is ahead of the other one, or that has said its last, or all are made.
  std::optional<unsigned> begin(unsigned place);
  void made(unsigned place) { ranks_[place].made.fetch_add(1); }
  // The rank begins none but those that the other one has begun.
  void close(unsigned place);
  CUdeviceptr word(unsigned place, unsigned turn) const;
  unsigned begun_by(unsigned place) const { return ranks_[place].begun; }
  unsigned made_by(unsigned place) const { return ranks_[place].made; }

 private:
  static constexpr unsigned kMost = 512, kAhead = 4;
  struct Rank {
    std::atomic<unsigned> begun{0}, made{0};
    bool is_closed = false;
  };

  std::mutex mutex_;
  Rank ranks_[2];
  CUdeviceptr words_ = 0;
};

struct Shared {
  explicit Shared(unsigned threads) : mailboxes(threads), history(threads) {}

  Gates gates;
  std::deque<Mailbox> mailboxes;
  History history;
  Meetings meetings;
};

struct World {
  World(const Api& a, Tally& t, Shared& s, unsigned number)
      : api(a),
        tally(t),
        gates(s.gates),
        mailboxes(s.mailboxes),
        history(s.history),
        meetings(s.meetings),
        place(number),
        streams(a, s.gates, number),
        kernels(a) {}

  const Api& api;
  Tally& tally;
  Gates& gates;
  std::deque<Mailbox>& mailboxes;
  History& history;
  Meetings& meetings;
  const unsigned place;
  Streams streams;
  Kernels kernels;
  CUcontext context = nullptr;
  CUdevice device = 0;
  World* other = nullptr;            // on the other device, if there are two
  std::atomic<bool> is_open{false};  // the other one may access this one's memory
};

// Leaves the other one's context current.
void open_to_other(World& world);

}  // namespace torture
