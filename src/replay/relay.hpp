// Threads that take turns: each does what is its, then hands the turn to the next, so that only one runs at
// any time. They end only where that is played too: a thread that did would give up what the recorded one
// kept. Whoever runs a relay ends the process soon.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace cupool::replay {

inline constexpr size_t kOver = ~size_t{0};

class Relay {
 public:
  explicit Relay(size_t threads) : gates_(threads), begun_(threads, false) {}

  // Until next(), the number of the thread whose turn it is, says kOver. pre: this and both functions live
  // on.
  template <typename Next, typename Play>
  void run(const Next& next, const Play& play) {
    hand_on(next, play);
    over_.wait(0, std::memory_order_acquire);
  }
  // The calling thread ends with what it plays; the next turn of its number is another thread's.
  void end_this_thread() { is_ending_ = true; }

 private:
  template <typename Next, typename Play>
  void hand_on(const Next& next, const Play& play) {
    const size_t other = next();
    if (other == kOver) {
      over_.store(1, std::memory_order_release);
      over_.notify_one();
      return;
    }
    gates_[other].store(1, std::memory_order_release);
    if (begun_[other]) return gates_[other].notify_one();
    begun_[other] = true;
    std::thread([this, other, &next, &play] { take_turns(other, next, play); }).detach();
  }
  template <typename Next, typename Play>
  void take_turns(size_t me, const Next& next, const Play& play) {
    for (;;) {
      gates_[me].wait(0, std::memory_order_acquire);
      gates_[me].store(0, std::memory_order_relaxed);
      while (!is_ending_ && next() == me) play();
      const bool is_ending = is_ending_;
      is_ending_ = false;
      if (is_ending) begun_[me] = false;
      hand_on(next, play);
      if (is_ending) return;
    }
  }

  std::vector<std::atomic<uint32_t>> gates_;
  std::vector<bool> begun_;
  bool is_ending_ = false;  // the one whose turn it is
  std::atomic<uint32_t> over_{0};
};

}  // namespace cupool::replay
