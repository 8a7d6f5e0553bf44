// One round of the two background threads, handed to and fro between them: the file thread says what
// neighbours ask for, the background thread calls the driver and says what the process holds. One of them has
// it at a time; the other one sleeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/own_thread.hpp"
#include "neighbours/registry.hpp"

namespace cupool::hooks {

struct Round {
  // From the file thread.
  neighbours::Ask asks[16] = {};
  size_t ask_count = 0;
  // From the background thread.
  bool is_done = false;  // false: it had to rest, and the requests stand
  neighbours::Figures figures[neighbours::Registry::kMostDevices] = {};
  size_t figure_count = 0;
};

class Handover {
 public:
  // ---- The file thread.

  // The round is its own but during these calls.
  Round& round() { return round_; }
  // Lets the background thread play the round.
  void play();
  // The background thread ends, and so.
  void end(ThreadEnds how);

  // ---- The background thread.

  // Null: it is to end.
  Round* wait();
  void played();
  ThreadEnds how() const { return how_; }

  void forget() {
    round_.ask_count = 0;
    turn_.store(kFiles, std::memory_order_relaxed);
  }

 private:
  enum Turn : uint32_t { kFiles, kDriver, kEnd };
  void set(Turn turn);
  Turn wait_while(Turn turn);

  std::atomic<uint32_t> turn_{kFiles};
  Round round_;
  ThreadEnds how_ = ThreadEnds::kPlainly;
};

}  // namespace cupool::hooks
