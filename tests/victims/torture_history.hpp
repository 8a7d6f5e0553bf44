// What the threads of the torture victim did last, so that a wrong byte has a past: one ring a thread,
// written by that thread alone, read when all have stopped. A short-lived thread writes into the ring of the
// one that waits for it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "torture_streams.hpp"

namespace torture {

struct Deed {
  std::uint64_t at = 0;  // nanoseconds
  const char* what = nullptr;
  CUdeviceptr p = 0;
  std::uint64_t bytes = 0;
  unsigned value = 0;
  Mark on, after;
};

class History {
 public:
  explicit History(unsigned threads) : rings_(threads) {}

  // From now on note() in this thread writes here.
  void enter(unsigned thread) { ring_ = &rings_[thread]; }
  static void note(Deed deed);
  // Tells what was done last to the memory at `where`, and between streams meanwhile. pre: no thread notes
  // anything.
  void tell(CUdeviceptr where) const;

 private:
  static constexpr std::size_t kKept = 1 << 14;
  struct Ring {
    std::vector<Deed> deeds = std::vector<Deed>(kKept);
    std::size_t count = 0;
  };

  std::deque<Ring> rings_;
  static thread_local Ring* ring_;
};

}  // namespace torture
