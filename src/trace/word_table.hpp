// Rows of words, each stored once and named by a number from 1: call stacks, the places in them, texts. Any
// thread adds without a lock, and finds what is there; nothing is ever removed or changed. In pages of its
// own, made as they are needed. A signal handler may interrupt it anywhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/pages.hpp"

namespace cupool::trace {

class WordTable {
 public:
  // At most 2^bits rows.
  constexpr explicit WordTable(unsigned bits) : bits_(bits) {}

  struct Found {
    std::span<const uint64_t> words;
    uint32_t note = 0;
  };
  // The row's number; 0: there is no room for more, or the host has no memory. A new row gets the note.
  uint32_t find_or_add(std::span<const uint64_t> words, uint32_t note = 0);
  // The row's number; 0: there is none.
  uint32_t find(std::span<const uint64_t> words) const;
  // No words: there is no such row.
  Found row(uint32_t number) const;

  // ---- One reader at a time.

  // Calls tell(number, found) for each row that was not told yet; false ends it before that one.
  template <typename Tell>
  bool tell_new(Tell&& tell) {
    const uint32_t end = last();
    for (uint32_t i = first_untold_; i <= end; ++i) {
      Row& row = rows_.load(std::memory_order_relaxed)[i];
      const State state = row.state.load(std::memory_order_acquire);
      if (state == State::kReady) {
        if (!tell(i, row.found())) return false;
        row.state.store(State::kTold, std::memory_order_relaxed);
      }
      if (state != State::kEmpty && i == first_untold_) ++first_untold_;
    }
    return true;
  }
  // Whether there is anything to tell.
  bool has_new() const { return first_untold_ <= last(); }
  // The same for all, told or not.
  template <typename Tell>
  void tell_all(Tell&& tell) const {
    for (uint32_t i = 1; i <= last(); ++i) {
      const Row& row = rows_.load(std::memory_order_relaxed)[i];
      if (row.state.load(std::memory_order_acquire) != State::kEmpty) tell(i, row.found());
    }
  }
  // All are new again: for the next trace.
  void forget_told();

 private:
  enum class State : uint32_t { kEmpty, kReady, kTold };
  struct Row {
    std::atomic<State> state;
    uint32_t count;
    uint32_t note;
    uint64_t hash;
    const uint64_t* words;
    Found found() const { return {{words, count}, note}; }
  };
  static constexpr size_t kChunkWords = 32 << 10;

  uint32_t last() const {
    const uint32_t used = used_.load(std::memory_order_acquire);
    return used < (1u << bits_) ? used : (1u << bits_) - 1;
  }
  bool make();
  bool is_row(uint32_t number, uint64_t hash, std::span<const uint64_t> words) const;
  uint64_t* take_words(size_t count);

  const unsigned bits_;
  std::atomic<Row*> rows_{nullptr};
  std::atomic<std::atomic<uint32_t>*> index_{nullptr};  // by hash: a row's number
  std::atomic<uint32_t> used_{0};
  // The chunk that is being filled: its address, and how much of it is taken.
  struct Chunk {
    std::atomic<size_t> used;
    uint64_t words[kChunkWords - 1];
  };
  std::atomic<Chunk*> chunk_{nullptr};
  uint32_t first_untold_ = 1;
};

}  // namespace cupool::trace
