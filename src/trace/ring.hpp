// What one thread has recorded and nobody has gathered yet: words in a ring that the thread alone writes and
// one gatherer at a time reads. No lock. An event is a word with its number and size, its time, and its
// struct. Rings stay for the life of the process; that of a thread that has ended serves another.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trace/events.hpp"

namespace cupool::trace {

class Ring {
 public:
  static constexpr size_t kWords = 32 << 10;
  static constexpr size_t kHead = 2;
  // Kept free for what is told under a lock, where nobody can make room: some 200 events in one call.
  static constexpr size_t kReserve = 2 << 10;

  // ---- The thread.

  bool has_room(size_t words) {
    const uint64_t used = head_.load(std::memory_order_relaxed);
    if (used + words + kHead - seen_tail_ <= kWords) [[likely]]
      return true;
    seen_tail_ = tail_.load(std::memory_order_acquire);
    return used + words + kHead - seen_tail_ <= kWords;
  }
  // pre: has_room().
  void put(Event event, uint64_t time, const uint64_t* words, size_t count) {
    uint64_t at = head_.load(std::memory_order_relaxed);
    words_[at++ % kWords] = static_cast<uint64_t>(event) | count << 8;
    words_[at++ % kWords] = time;
    for (size_t i = 0; i < count; ++i) words_[at++ % kWords] = words[i];
    head_.store(at, std::memory_order_release);
  }
  // Whether half of it is full; said once until it is gathered.
  bool is_half_full() {
    const uint64_t used = head_.load(std::memory_order_relaxed);
    if (used - seen_tail_ < kWords / 2 || rung_ == seen_tail_ + 1) [[likely]]
      return false;
    seen_tail_ = tail_.load(std::memory_order_acquire);
    if (used - seen_tail_ < kWords / 2) return false;
    rung_ = seen_tail_ + 1;
    return true;
  }
  void lose() { lost_.fetch_add(1, std::memory_order_relaxed); }

  // ---- The gatherer.

  bool is_empty() const {
    return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_relaxed) &&
           lost_.load(std::memory_order_relaxed) == 0;
  }
  // What is there now is to be gathered. What these events name must be told before them.
  void mark() { marked_ = head_.load(std::memory_order_acquire); }
  // Calls take(event, time, words) for each event up to the mark, the oldest first; false ends it before that
  // one.
  template <typename Take>
  void gather(Take&& take) {
    const uint64_t end = marked_;
    uint64_t at = tail_.load(std::memory_order_relaxed);
    while (at != end) {
      const uint64_t head = words_[at % kWords];
      const size_t count = head >> 8;
      uint64_t words[kMostWords];
      for (size_t i = 0; i < count; ++i) words[i] = words_[(at + kHead + i) % kWords];
      if (!take(static_cast<Event>(head & 0xFF), words_[(at + 1) % kWords], words)) break;
      at += kHead + count;
    }
    tail_.store(at, std::memory_order_release);
  }
  uint64_t take_lost() { return lost_.exchange(0, std::memory_order_relaxed); }

  // ---- The list of rings.

  Ring* next = nullptr;
  std::atomic<int> thread{0};  // the kernel's number; 0: nobody's
  bool is_given_up = false;    // it was full for long: nobody waits for it any more
  bool is_busy = false;        // the thread is in put(); a signal handler of its own must not be

 private:
  alignas(64) std::atomic<uint64_t> head_{0};
  uint64_t seen_tail_ = 0;
  uint64_t rung_ = 0;
  std::atomic<uint64_t> lost_{0};
  alignas(64) std::atomic<uint64_t> tail_{0};
  uint64_t marked_ = 0;
  alignas(64) uint64_t words_[kWords] = {};
};

}  // namespace cupool::trace
