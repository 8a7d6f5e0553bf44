// What a stream capture forbids to the rest of a program, as gates: captures pass on one side, the calls they
// forbid on the other, any number of either but never both. One more keeps frees and waits from streams that
// wait for later work: who closes such a stream is on the capturing side. A valid CUDA program keeps these
// rules itself. Gates are taken in the order of this file; whoever captures takes no gate but by try_enter.
#pragma once

#include <condition_variable>
#include <mutex>

namespace torture {

enum class Side { kCall, kCapture };

class Gate {
 public:
  void enter(Side side) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int mine = static_cast<int>(side);
    ++waiting_[mine];
    moved_.wait(lock, [&] { return inside_[1 - mine] == 0 && (turn_ == mine || waiting_[1 - mine] == 0); });
    --waiting_[mine];
    ++inside_[mine];
  }
  bool try_enter(Side side) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int mine = static_cast<int>(side);
    if (inside_[1 - mine] != 0) return false;
    ++inside_[mine];
    return true;
  }
  void leave(Side side) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int mine = static_cast<int>(side);
    if (--inside_[mine] == 0) turn_ = 1 - mine;
    moved_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  int inside_[2] = {0, 0};
  int waiting_[2] = {0, 0};
  int turn_ = 0;  // who goes first when both sides wait
};

// A passage held for a scope.
class Pass {
 public:
  Pass() = default;
  Pass(Gate& gate, Side side) : gate_(&gate), side_(side) { gate.enter(side); }
  Pass(Pass&& other) noexcept : gate_(other.gate_), side_(other.side_) { other.gate_ = nullptr; }
  Pass& operator=(Pass&&) = delete;
  ~Pass() {
    if (gate_ != nullptr) gate_->leave(side_);
  }
  static Pass attempt(Gate& gate, Side side) {
    Pass pass;
    if (gate.try_enter(side)) {
      pass.gate_ = &gate;
      pass.side_ = side;
    }
    return pass;
  }
  explicit operator bool() const { return gate_ != nullptr; }

 private:
  Gate* gate_ = nullptr;
  Side side_ = Side::kCall;
};

struct Gates {
  Gate unsafe;  // allocation, frees, waits, queries, creation: forbidden everywhere by a capture in global
                // mode
  Gate legacy;  // work on the legacy stream: forbidden while a blocking stream captures
  Gate whole;   // waits for a whole context: forbidden while anything captures
  Gate words;   // frees and waits, against streams that wait for what their thread has yet to submit
};

}  // namespace torture
