// See device.hpp. Lists of tallies only grow, by their heads, so a reader needs no lock. Peaks are raised by
// compare and exchange, and only on paths that are slow already.
#include "stats/device.hpp"

#include <time.h>

#include <algorithm>

namespace cupool::stats {
namespace {

constinit std::array<Device, kMostDevices> devices{};
constinit std::atomic<int64_t> peak_bound{kPeakBound};

template <typename T>
void raise(std::atomic<T>& peak, T value) {
  T seen = peak.load(std::memory_order_relaxed);
  while (value > seen && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

template <typename T, typename Node>
void push(std::atomic<T*>& head, T& node, Node T::*next) {
  T* first = head.load(std::memory_order_relaxed);
  do {
    node.*next = first;
  } while (!head.compare_exchange_weak(first, &node, std::memory_order_release, std::memory_order_relaxed));
}

uint64_t positive(int64_t value) { return value > 0 ? static_cast<uint64_t>(value) : 0; }

// What the program would have waited for the driver, had it made every call itself, less what the pool's
// calls took. Nothing is said of a kind of call that this run never made.
uint64_t saved(const DeviceSums& sums) {
  const auto without_us = [](uint64_t calls, uint64_t made, uint64_t ns) {
    return made == 0 ? 0.0 : static_cast<double>(ns) / static_cast<double>(made) * static_cast<double>(calls);
  };
  const double bare = without_us(sums.allocations, sums.segments_allocated, sums.driver_allocate_ns) +
                      without_us(sums.frees, sums.segments_released, sums.driver_release_ns);
  const double ours = static_cast<double>(sums.driver_allocate_ns + sums.driver_release_ns);
  return bare > ours ? static_cast<uint64_t>(bare - ours) : 0;
}

}  // namespace

void Holdings::drop() {
  dropped_.fetch_add(asked(), std::memory_order_relaxed);
  live_.store(0, std::memory_order_relaxed);
  tell();
}

void Holdings::drop(uint64_t asked, uint64_t block_bytes) {
  dropped_.fetch_add(static_cast<int64_t>(asked), std::memory_order_relaxed);
  move(-static_cast<int64_t>(block_bytes));
}

void Holdings::tell() {
  const int64_t bound = peak_bound.load(std::memory_order_relaxed);
  const auto half = static_cast<int64_t>(width_.load(std::memory_order_relaxed) / 2);
  const int64_t now_live = live();
  const int64_t told = low_.exchange(now_live - bound, std::memory_order_acq_rel) + half;
  // After low_: whoever sees it wide sees a low_ that goes with it.
  width_.store(2 * static_cast<uint64_t>(bound), std::memory_order_release);
  device_.told(now_live - told);
}

int64_t Holdings::catch_up() {
  const auto half = static_cast<int64_t>(width_.load(std::memory_order_acquire) / 2);
  if (half == 0) return 0;
  int64_t low = low_.load(std::memory_order_acquire);
  const int64_t now_live = live();
  // Else its owner has just told more than is known here.
  const bool caught_up = low_.compare_exchange_strong(low, now_live - half, std::memory_order_acq_rel);
  return caught_up ? now_live - (low + half) : 0;
}

void Device::enlist(Tally& tally) {
  used_.store(true, std::memory_order_relaxed);
  push(tallies_, tally, &Tally::next_);
}

void Device::enlist(Holdings& holdings) {
  enlist(static_cast<Tally&>(holdings));
  push(holdings_, holdings, &Holdings::next_holdings_);
}

// On the way of every large block, so it costs one shared word. The others are asked only at a new peak.
void Device::told(int64_t live) {
  const int64_t now = told_live_.fetch_add(live, std::memory_order_relaxed) + live;
  if (now > peak_live_.load(std::memory_order_relaxed)) {
    // When everybody tells of everything, the sum is the truth, and asking one after the other is not.
    if (peak_bound.load(std::memory_order_relaxed) == 0) raise(peak_live_, now);
    look();
  }
  if (live < 0) see_cached();
}

void Device::look() {
  int64_t live = 0;
  int64_t asked = 0;
  int64_t change = 0;
  for (Holdings* one = holdings_.load(std::memory_order_acquire); one != nullptr; one = one->next_holdings_) {
    change += one->catch_up();
    live += one->live();
    asked += one->asked();
  }
  told_live_.fetch_add(change, std::memory_order_relaxed);
  const bool exact = peak_bound.load(std::memory_order_relaxed) == 0;
  if (!exact && live <= peak_live_.load(std::memory_order_relaxed)) return;
  if (!exact) raise(peak_live_, live);
  raise(peak_asked_, asked);
}

void Device::see_cached() {
  const auto reserved = static_cast<int64_t>(reserved_.load(std::memory_order_relaxed));
  raise(peak_cached_, reserved - told_live_.load(std::memory_order_relaxed));
}

void Device::reserve(uint64_t bytes) {
  raise(peak_reserved_, reserved_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

void Device::release(uint64_t bytes) { reserved_.fetch_sub(bytes, std::memory_order_relaxed); }

DeviceSums Device::read() const {
  std::array<uint64_t, kDeviceCounters> total{};
  for (size_t i = 0; i < kDeviceCounters; ++i) total[i] = counts_[i].load(std::memory_order_relaxed);
  for (const Tally* tally = tallies_.load(std::memory_order_acquire); tally != nullptr;
       tally = tally->next_) {
    for (size_t i = 0; i < kDeviceCounters; ++i)
      total[i] += tally->counts_[i].load(std::memory_order_relaxed);
  }
  DeviceSums sums;
#define CUPOOL_DEVICE(name, doc) sums.name = total[static_cast<size_t>(DeviceCounter::name)];
#include "stats/counters.def"
  int64_t live = 0;
  int64_t asked = 0;
  for (const Holdings* one = holdings_.load(std::memory_order_acquire); one != nullptr;
       one = one->next_holdings_) {
    live += one->live();
    asked += one->asked();
    for (size_t i = 0; i < kSizeBuckets; ++i) sums.sizes[i] += one->sizes_[i].load(std::memory_order_relaxed);
  }
  for (const uint64_t count : sums.sizes) sums.allocations += count;
  sums.frees = sums.blocks_freed;
  sums.live_bytes = positive(live);
  sums.asked_bytes = positive(asked);
  sums.reserved_bytes = reserved_.load(std::memory_order_relaxed);
  sums.cached_bytes = positive(static_cast<int64_t>(sums.reserved_bytes) - live);
  sums.peak_live_bytes = std::max(sums.live_bytes, positive(peak_live_.load(std::memory_order_relaxed)));
  sums.peak_asked_bytes = std::max(sums.asked_bytes, positive(peak_asked_.load(std::memory_order_relaxed)));
  sums.peak_cached_bytes =
      std::max(sums.cached_bytes, positive(peak_cached_.load(std::memory_order_relaxed)));
  sums.peak_reserved_bytes = peak_reserved_.load(std::memory_order_relaxed);
  // Threads tell of their holdings one after the other: what cannot be is left over from that.
  sums.peak_asked_bytes = std::min(sums.peak_asked_bytes, sums.peak_live_bytes);
  sums.peak_cached_bytes = std::min(sums.peak_cached_bytes, sums.peak_reserved_bytes);
  const uint64_t not_at_once = sums.hits_after_wait + sums.misses + sums.native_allocations;
  sums.hits_at_once = positive(static_cast<int64_t>(sums.allocations - not_at_once));
  sums.thread_hits = positive(static_cast<int64_t>(sums.hits_at_once - sums.slab_hits - sums.range_hits));
  sums.waits_avoided = positive(static_cast<int64_t>(sums.frees - sums.segments_released));
  sums.saved_ns = saved(sums);
  return sums;
}

void Device::reset_peaks() {
  const DeviceSums now = read();
  peak_live_.store(static_cast<int64_t>(now.live_bytes), std::memory_order_relaxed);
  peak_asked_.store(static_cast<int64_t>(now.asked_bytes), std::memory_order_relaxed);
  peak_cached_.store(static_cast<int64_t>(now.cached_bytes), std::memory_order_relaxed);
  peak_reserved_.store(now.reserved_bytes, std::memory_order_relaxed);
}

void Device::forget_after_fork() {
  for (auto& word : counts_) word.store(0, std::memory_order_relaxed);
  used_.store(false, std::memory_order_relaxed);
  tallies_.store(nullptr, std::memory_order_relaxed);
  holdings_.store(nullptr, std::memory_order_relaxed);
  for (auto* word : {&told_live_, &peak_live_, &peak_asked_, &peak_cached_}) {
    word->store(0, std::memory_order_relaxed);
  }
  reserved_.store(0, std::memory_order_relaxed);
  peak_reserved_.store(0, std::memory_order_relaxed);
}

double DeviceSums::fragmentation() const {
  if (peak_reserved_bytes == 0 || peak_live_bytes >= peak_reserved_bytes) return 0;
  return 1 - static_cast<double>(peak_live_bytes) / static_cast<double>(peak_reserved_bytes);
}

void DeviceSums::add(const DeviceSums& other) {
#define CUPOOL_DEVICE(name, doc) name += other.name;
#define CUPOOL_FIGURE(name, doc) name += other.name;
#include "stats/counters.def"
  for (size_t i = 0; i < kSizeBuckets; ++i) sizes[i] += other.sizes[i];
}

Device& device(int number) { return devices[static_cast<size_t>(std::clamp(number, 0, kMostDevices - 1))]; }

void set_peak_bound(int64_t bytes) { peak_bound.store(bytes, std::memory_order_relaxed); }

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace cupool::stats
