// The account of a pool's bytes: how many its segments have, how many of them are free, handed out, lost to
// taints. Written under the lock of Ranges, read by any thread without it: figures that are read one after
// the other may be of different moments.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>

#include "base/bytes.hpp"
#include "pool/range.hpp"
#include "pool/size_classes.hpp"

namespace cupool::pool {

class RangeBytes {
 public:
  // Of all segments.
  uint64_t reserved() const { return reserved_.load(std::memory_order_relaxed); }
  // Of them, what is not lost to new blocks because its segment is tainted.
  uint64_t usable() const {
    const uint64_t all = reserved();
    return all - std::min(all, tainted());
  }
  uint64_t tainted() const { return tainted_.load(std::memory_order_relaxed); }
  // Of small segments.
  uint64_t for_small() const { return for_small_.load(std::memory_order_relaxed); }
  // In free ranges, pending ones included.
  uint64_t free() const { return free_.load(std::memory_order_relaxed); }
  // In driver segments of which no range is handed out, tainted ones aside.
  uint64_t idle() const { return idle_.load(std::memory_order_relaxed); }
  // What is handed out: in all, and in ranges of exactly so many bytes, up to the largest that threads keep.
  uint64_t taken() const {
    const uint64_t all = reserved();
    return all - std::min(all, free());
  }
  uint64_t taken_of(uint64_t bytes) const {
    return bytes * taken_of_size_[bytes >> kGranuleShift].load(std::memory_order_relaxed);
  }
  // The most bytes that were ever handed out at once.
  uint64_t peak_taken() const { return peak_taken_.load(std::memory_order_relaxed); }
  // The most that the driver would have had to give for what was handed out at once, if each range had been
  // an allocation of its own: all ranges, or those of a page and more. Slabs count as they are.
  uint64_t peak_alone() const { return peak_alone_.load(std::memory_order_relaxed); }
  uint64_t peak_apart() const { return peak_apart_.load(std::memory_order_relaxed); }
  // What is handed out now, as the second of these counts it; and what lies free beyond that in driver
  // segments of which something is handed out.
  uint64_t apart() const { return apart_.load(std::memory_order_relaxed); }
  uint64_t in_holes() const {
    const uint64_t all = usable();
    return all - std::min(all, idle() + apart());
  }
  // The most bytes that ranges of less than a page ever had.
  uint64_t peak_minor() const { return peak_minor_.load(std::memory_order_relaxed); }

  // ---- Under the lock.

  void add_reserved(uint64_t bytes, bool is_small) {
    add(reserved_, bytes);
    if (is_small) add(for_small_, bytes);
  }
  void remove_reserved(uint64_t bytes, bool is_small) {
    add(reserved_, -bytes);
    if (is_small) add(for_small_, -bytes);
  }
  void add_free(uint64_t bytes) { add(free_, bytes); }
  void remove_free(uint64_t bytes) { add(free_, -bytes); }
  void add_idle(uint64_t bytes) { add(idle_, bytes); }
  void remove_idle(uint64_t bytes) { add(idle_, -bytes); }
  void add_tainted(uint64_t bytes) { add(tainted_, bytes); }
  void remove_tainted(uint64_t bytes) { add(tainted_, -bytes); }
  // A range of so many bytes is handed out, or no longer.
  void add_taken(uint64_t bytes) {
    count_taken(bytes, 1);
    add(alone_, bytes_alone(bytes));
    add(apart_, bytes_apart(bytes));
    raise(peak_alone_, alone_.load(std::memory_order_relaxed));
    raise(peak_apart_, apart_.load(std::memory_order_relaxed));
    if (bytes >= kPageBytes) return;
    add(minor_, bytes);
    raise(peak_minor_, minor_.load(std::memory_order_relaxed));
  }
  void remove_taken(uint64_t bytes) {
    count_taken(bytes, ~uint32_t{0});
    add(alone_, -bytes_alone(bytes));
    add(apart_, -bytes_apart(bytes));
    if (bytes < kPageBytes) add(minor_, -bytes);
  }
  void note_peak() { raise(peak_taken_, taken()); }
  void clear() {
    for (std::atomic<uint64_t>* one : {&reserved_, &for_small_, &tainted_, &free_, &idle_, &peak_taken_,
                                       &alone_, &apart_, &minor_, &peak_alone_, &peak_apart_, &peak_minor_})
      one->store(0, std::memory_order_relaxed);
    for (std::atomic<uint32_t>& count : taken_of_size_) count.store(0, std::memory_order_relaxed);
  }

 private:
  // As many to a page as fit, as the driver packs small allocations.
  static uint64_t bytes_alone(uint64_t bytes) {
    return bytes >= kPageBytes ? round_up(bytes, kPageBytes) : kPageBytes / (kPageBytes / bytes);
  }
  static uint64_t bytes_apart(uint64_t bytes) {
    return bytes >= kPageBytes ? round_up(bytes, kPageBytes) : bytes;
  }
  static void raise(std::atomic<uint64_t>& most, uint64_t bytes) {
    if (bytes > most.load(std::memory_order_relaxed)) most.store(bytes, std::memory_order_relaxed);
  }
  static void add(std::atomic<uint64_t>& to, uint64_t bytes) {
    to.store(to.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  void count_taken(uint64_t bytes, uint32_t more) {
    if (bytes > SizeClasses::kLargestKept) return;
    std::atomic<uint32_t>& count = taken_of_size_[bytes >> kGranuleShift];
    count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }

  std::atomic<uint64_t> reserved_{0};
  std::atomic<uint64_t> for_small_{0};
  std::atomic<uint64_t> tainted_{0};
  std::atomic<uint64_t> free_{0};
  std::atomic<uint64_t> idle_{0};
  std::atomic<uint64_t> peak_taken_{0};
  std::atomic<uint64_t> alone_{0};
  std::atomic<uint64_t> apart_{0};
  std::atomic<uint64_t> minor_{0};
  std::atomic<uint64_t> peak_alone_{0};
  std::atomic<uint64_t> peak_apart_{0};
  std::atomic<uint64_t> peak_minor_{0};
  std::array<std::atomic<uint32_t>, (SizeClasses::kLargestKept >> kGranuleShift) + 1> taken_of_size_{};
};

}  // namespace cupool::pool
