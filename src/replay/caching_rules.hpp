// What PyTorch's caching allocator would reserve for the same allocations, by its rules alone: sizes rounded
// to 512 bytes; up to 1 MiB from segments of 2 MiB, below 10 MiB from segments of 20 MiB, else from one of
// its own size in steps of 2 MiB; best fit in the pool of the stream; a rest is split off where it serves (of
// a small block 512 bytes, of a large one more than 1 MiB) and merged again. When the device has no more,
// what is wholly free goes back, and it tries once more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "base/bytes.hpp"

namespace cupool::replay {

class CachingRules {
 public:
  // `expandable`: segments that grow instead (expandable_segments:True): one for each stream and pool, mapped
  // in steps of 2 or 20 MiB, from whose end every block may be split off to 512 bytes.
  explicit CachingRules(bool expandable = false, uint64_t capacity = ~uint64_t{0})
      : expandable_(expandable), capacity_(capacity) {}

  uint64_t reserved() const { return reserved_; }
  uint64_t peak() const { return peak_; }
  uint64_t driver_allocations() const { return driver_allocations_; }

  // 0: the device has no more.
  uint64_t allocate(uint64_t bytes, long stream) {
    const uint64_t at = try_to_allocate(bytes, stream);
    return at != 0 || !give_back() ? at : try_to_allocate(bytes, stream);
  }
  void release(uint64_t at) {
    auto block = blocks_.find(at);
    block->second.is_taken = false;
    auto& free = free_[{block->second.stream, block->second.is_small}];
    const auto merge = [&](auto low, auto high) {
      low->second.bytes += high->second.bytes;
      blocks_.erase(high);
    };
    const auto is_free_beside = [&](auto other) {
      return other != blocks_.end() && !other->second.is_taken &&
             other->second.segment == block->second.segment;
    };
    if (const auto next = std::next(block); is_free_beside(next)) {
      free.erase({next->second.bytes, next->first});
      merge(block, next);
    }
    if (block != blocks_.begin() && is_free_beside(std::prev(block))) {
      const auto before = std::prev(block);
      free.erase({before->second.bytes, before->first});
      merge(before, block);
      block = before;
    }
    free.insert({block->second.bytes, block->first});
  }

 private:
  static constexpr uint64_t kApart = uint64_t{1} << 40;
  using Free = std::set<std::pair<uint64_t, uint64_t>>;

  bool take(uint64_t bytes) {
    if (bytes > capacity_ - reserved_) return false;
    reserved_ += bytes;
    peak_ = std::max(peak_, reserved_);
    return true;
  }
  // Segments that are wholly free; of those that grow, what is free at the end. False: there was nothing.
  bool give_back() {
    const uint64_t before = reserved_;
    for (auto block = blocks_.begin(); block != blocks_.end();) {
      const auto [at, one] = *block;
      const auto next = std::next(block);
      const bool is_last = next == blocks_.end() || next->second.segment != one.segment;
      const bool is_first = at == one.segment;
      if (!one.is_taken && is_last && (is_first || expandable_)) {
        free_[{one.stream, one.is_small}].erase({one.bytes, at});
        blocks_.erase(block);
        reserved_ -= one.bytes;
      }
      block = next;
    }
    return reserved_ != before;
  }
  uint64_t try_to_allocate(uint64_t bytes, long stream) {
    const uint64_t size = round_up(bytes < 512 ? 512 : bytes, uint64_t{512});
    const bool is_small = size <= kMiB;
    auto& free = free_[{stream, is_small}];
    auto found = free.lower_bound({size, 0});
    if (found == free.end() && expandable_) found = extend(free, stream, is_small, size);
    if (found == free.end()) {
      if (expandable_) return 0;
      const uint64_t large = size < 10 * kMiB ? 20 * kMiB : round_up(size, 2 * kMiB);
      const uint64_t segment = is_small ? 2 * kMiB : large;
      if (!take(segment)) return 0;
      blocks_[next_] = {segment, next_, stream, is_small, false};
      found = free.insert({segment, next_}).first;
      next_ += kApart;
      ++driver_allocations_;
    }
    const uint64_t at = found->second;
    free.erase(found);
    Block& block = blocks_[at];
    block.is_taken = true;
    const uint64_t rest = block.bytes - size;
    if (is_small || expandable_ ? rest >= 512 : rest > kMiB) {
      block.bytes = size;
      blocks_[at + size] = {rest, block.segment, stream, is_small, false};
      free.insert({rest, at + size});
    }
    return at;
  }
  // The segment of the stream and pool grows at its end, by as much as its last block lacks; end of `free`:
  // the device has no more.
  Free::iterator extend(Free& free, long stream, bool is_small, uint64_t size) {
    const uint64_t step = is_small ? 2 * kMiB : 20 * kMiB;
    const auto [entry, is_new] = segments_.try_emplace({stream, is_small}, next_);
    if (is_new) next_ += kApart;
    const uint64_t start = entry->second;
    auto last = blocks_.lower_bound(start + kApart);
    const bool is_empty = last == blocks_.begin() || std::prev(last)->first < start;
    if (!is_empty) --last;
    const uint64_t end = is_empty ? start : last->first + last->second.bytes;
    const bool has_rest = !is_empty && !last->second.is_taken;
    const uint64_t lacking = round_up(size - (has_rest ? last->second.bytes : 0), step);
    if (!take(lacking)) return free.end();
    driver_allocations_ += lacking / step;
    if (!has_rest) {
      blocks_[end] = {lacking, start, stream, is_small, false};
      return free.insert({lacking, end}).first;
    }
    free.erase({last->second.bytes, last->first});
    last->second.bytes += lacking;
    return free.insert({last->second.bytes, last->first}).first;
  }

  struct Block {
    uint64_t bytes, segment;
    long stream;
    bool is_small, is_taken;
  };
  std::map<uint64_t, Block> blocks_;
  std::map<std::pair<long, bool>, Free> free_;
  std::map<std::pair<long, bool>, uint64_t> segments_;  // that grow
  const bool expandable_;
  const uint64_t capacity_;
  uint64_t peak_ = 0;
  uint64_t next_ = kApart;
  uint64_t reserved_ = 0;
  uint64_t driver_allocations_ = 0;
};

}  // namespace cupool::replay
