// Counting for one device without a shared cache line on the fast path. A tally is a block of counts with one
// writer at a time: a thread cache, or the thread that holds the lock of the part of the pool that owns it.
// Reading adds all tallies up. Records live forever: an ended context stays counted. Rare events go to the
// device's own words, which any thread may add to.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace cupool::stats {

enum class DeviceCounter : unsigned {
#define CUPOOL_DEVICE(name, doc) name,
#include "stats/counters.def"
};
inline constexpr size_t kDeviceCounters = 0
#define CUPOOL_DEVICE(name, doc) +1
#include "stats/counters.def"
    ;

// Sizes by powers of two: bucket i counts requests above 2^(i-1) and up to 2^i bytes.
inline constexpr size_t kSizeBuckets = 49;
// pre: asked is not 0, and at most kMostBytes.
inline constexpr uint64_t kMostBytes = uint64_t{1} << (kSizeBuckets - 1);
inline size_t size_bucket(uint64_t asked) {
  return 63 ^ static_cast<size_t>(std::countl_zero(2 * asked - 1));
}

// A benchmark compiles out the counting of allocations and frees, to measure its cost.
#ifdef CUPOOL_WITHOUT_STATS
inline constexpr bool kCounting = false;
#else
inline constexpr bool kCounting = true;
#endif

class Device;
enum class SlotKind : uint32_t;

class Tally {
 public:
  void add(DeviceCounter counter, uint64_t amount = 1) {
    add_to(counts_[static_cast<size_t>(counter)], amount);
  }
  uint64_t get(DeviceCounter counter) const {
    return counts_[static_cast<size_t>(counter)].load(std::memory_order_relaxed);
  }

 protected:
  static void add_to(std::atomic<uint64_t>& word, uint64_t amount) {
    word.store(word.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }

 private:
  friend class Device;
  std::array<std::atomic<uint64_t>, kDeviceCounters> counts_{};
  Tally* next_ = nullptr;
};

// What one thread handed to the program and took back: a block may be freed by another thread, so one
// thread's holdings can be negative. A thread reports to the device only when its holdings leave the span
// they have covered so far. With one thread the span has no margin and peaks are exact: a loop that allocates
// and frees stays below its first peak and reports nothing. With several threads each span has a margin on
// either side; before the device accepts a new peak it reads all threads, and all spans restart. With many it
// does so once their sum has moved by half of what peaks may be off: it reads each thread once for so many
// bytes, however many threads there are.
class ThreadTally : public Tally {
 public:
  explicit ThreadTally(Device& device) : device_(device) {}

  [[gnu::always_inline]] void give(uint64_t asked, uint64_t block_bytes) {
    if (!kCounting) return;
    add_to(sizes_[size_bucket(asked)], 1);
    add(DeviceCounter::bytes_asked, asked);
    const int64_t live = this->live() + static_cast<int64_t>(block_bytes);
    live_.store(live, std::memory_order_relaxed);
    if (live > high_.load(std::memory_order_relaxed)) [[unlikely]]
      tell();
  }
  // The pool itself needs the freed bytes, counting or not.
  [[gnu::always_inline]] void take_back(uint64_t asked, uint64_t block_bytes) {
    add(DeviceCounter::blocks_freed);
    add(DeviceCounter::bytes_freed, asked);
    if (!kCounting) return;
    give_up(block_bytes);
  }
  int64_t live() const { return live_.load(std::memory_order_relaxed); }
  int64_t asked() const {
    return static_cast<int64_t>(get(DeviceCounter::bytes_asked) - get(DeviceCounter::bytes_freed)) -
           dropped_.load(std::memory_order_relaxed);
  }
  Device& device() { return device_; }
  // The context is gone and its live blocks with it; or only this much of them.
  void drop();
  void drop(uint64_t asked, uint64_t block_bytes);

 private:
  friend class Device;
  [[gnu::always_inline]] void give_up(uint64_t block_bytes) {
    const int64_t live = this->live() - static_cast<int64_t>(block_bytes);
    live_.store(live, std::memory_order_relaxed);
    if (live < low_.load(std::memory_order_relaxed)) [[unlikely]]
      tell();
  }
  void tell();

  std::atomic<int64_t> live_{0};
  // The ends of the span, the margin included. Empty at first, so that the first block is reported, however
  // small. Written by the owner, and by the thread that reads all threads.
  std::atomic<int64_t> high_{0};
  std::atomic<int64_t> low_{0};
  int64_t told_ = 0;                 // only if every change is reported
  std::atomic<int64_t> dropped_{0};  // written by the thread that ends the context; readers add it up
  Device& device_;
  std::array<std::atomic<uint64_t>, kSizeBuckets> sizes_{};
  ThreadTally* next_holdings_ = nullptr;
};

// The counts and figures of one device, or of all of them, at the moment they were read.
struct DeviceSums {
#define CUPOOL_DEVICE(name, doc) uint64_t name = 0;
#define CUPOOL_FIGURE(name, doc) uint64_t name = 0;
#include "stats/counters.def"
  std::array<uint64_t, kSizeBuckets> sizes{};

  // The share of peak reserved memory that was never in use at once.
  double fragmentation() const;
  // Computes the figures that follow from the final peaks.
  void fold_peaks();
  void add(const DeviceSums& other);
  // Adds what spilled from this device: its counts are the device's too, its bytes are the host's.
  void add_spilled(const DeviceSums& host);
};

class Device {
 public:
  constexpr Device() = default;

  // A tally of this device, for good.
  Tally& add_tally();
  ThreadTally& add_thread_tally();
  // The same of one that somebody else keeps.
  void enlist(Tally& tally);
  void enlist(ThreadTally& holdings);
  // For a copy of another process's device: drops its lists, and adds a tally without a change of its counts.
  void unlink();
  void link(Tally& tally);
  void link(ThreadTally& holdings);
  // From any thread.
  void count(DeviceCounter counter, uint64_t amount = 1) {
    counts_[static_cast<size_t>(counter)].fetch_add(amount, std::memory_order_relaxed);
    used_.store(true, std::memory_order_relaxed);
  }
  void reserve(uint64_t bytes);
  void release(uint64_t bytes);

  bool is_used() const { return used_.load(std::memory_order_relaxed); }
  // All but `largest_free_range`, which only the pool knows. Takes no lock: it may run in a signal handler.
  DeviceSums read() const;
  void reset_peaks();
  void forget_after_fork();

 private:
  friend class ThreadTally;
  template <typename T, typename... Args>
  T& place(SlotKind kind, Args&... args);
  // How far a thread's span reaches beyond its reported holdings, and how far a peak may be off: twice as far
  // for each thread.
  int64_t margin() const;
  int64_t slack() const { return 2 * margin() * enlisted_.load(std::memory_order_relaxed); }
  // One end of a thread's span moved.
  void told_more(int64_t more);
  void told_less(int64_t less);
  void told_all(int64_t change);
  enum class Ends { kHigh, kLow, kBoth };
  void look(Ends ends);

  std::array<std::atomic<uint64_t>, kDeviceCounters> counts_{};
  std::atomic<bool> used_{false};
  std::atomic<Tally*> tallies_{nullptr};
  std::atomic<ThreadTally*> holdings_{nullptr};
  std::atomic<uint64_t> reserved_{0};
  std::atomic<int64_t> told_live_{0};  // if every change is reported
  std::atomic<int64_t> enlisted_{0};   // holdings
  std::atomic<const void*> first_thread_{nullptr};
  std::atomic<bool> several_threads_{false};
  std::atomic<int64_t> most_live_{0};  // sums of the upper and of the lower ends of all spans
  std::atomic<int64_t> least_live_{0};
  std::atomic<int64_t> peak_live_{0};
  std::atomic<int64_t> peak_asked_{0};
  std::atomic<int64_t> peak_cached_{0};
  std::atomic<uint64_t> peak_reserved_{0};
};

inline constexpr int kMostDevices = 64;
// By the driver's number; devices beyond the last record share it.
Device& device(int number);
// The same for the blocks that spilled from that device: their bytes are host memory, and never the device's.
Device& spilled(int number);

// How far a peak may be off for each thread, if there are several; 0 makes all peaks exact.
inline constexpr int64_t kPeakBound = 1 << 20;
void set_peak_bound(int64_t bytes);

}  // namespace cupool::stats
