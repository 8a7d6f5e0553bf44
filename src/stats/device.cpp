// See device.hpp. Lists of tallies only grow, at the head, so a reader needs no lock. High-water marks are
// raised by compare and exchange, and only on slow paths.
#include "stats/device.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <new>
#include <utility>

#include "base/host_memory.hpp"
#include "stats/sheet.hpp"

namespace cupool::stats {
namespace {

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

// How far the sum of all spans may be beyond a peak before all threads are read: the margins, and with many
// threads as much again.
int64_t patience(int64_t slack, int64_t threads) {
  constexpr int64_t kFewThreads = 64;
  return threads <= kFewThreads ? slack / 2 : slack;
}

uint64_t positive(int64_t value) { return value > 0 ? static_cast<uint64_t>(value) : 0; }

constexpr int64_t kAbove = int64_t{1}
                           << 62;  // whatever is live; sums of it wrap, and come back when it is replaced
constinit thread_local char this_thread_mark = 0;  // its address identifies the thread

}  // namespace

void ThreadTally::drop() {
  dropped_.fetch_add(asked(), std::memory_order_relaxed);
  live_.store(0, std::memory_order_relaxed);
  tell();
}

void ThreadTally::drop(uint64_t asked, uint64_t block_bytes) {
  dropped_.fetch_add(static_cast<int64_t>(asked), std::memory_order_relaxed);
  give_up(block_bytes);
}

void ThreadTally::tell() {
  const int64_t now = live();
  if (peak_bound.load(std::memory_order_relaxed) == 0) {
    high_.store(std::numeric_limits<int64_t>::min(), std::memory_order_relaxed);
    low_.store(std::numeric_limits<int64_t>::max(), std::memory_order_relaxed);
    device_.told_all(now - std::exchange(told_, now));
    return;
  }
  const int64_t margin = device_.margin();
  if (now > high_.load(std::memory_order_relaxed)) {
    device_.told_more(now + margin - high_.exchange(now + margin, std::memory_order_relaxed));
  } else if (now < low_.load(std::memory_order_relaxed)) {
    device_.told_less(low_.exchange(now - margin, std::memory_order_relaxed) - (now - margin));
  }
}

// In a slot of the sheet; of a device that is not in the sheet, or when all are taken, elsewhere.
template <typename T, typename... Args>
T& Device::place(SlotKind kind, Args&... args) {
  const Sheet& sheet = detail::sheet;
  const bool is_listed = !std::less<>{}(this, sheet.devices.data()) &&
                         std::less<>{}(this, sheet.devices.data() + sheet.devices.size());
  Slot* const slot = is_listed ? take_slot() : nullptr;
  if (slot == nullptr) return *new (host::take(sizeof(T), alignof(T))) T(args...);
  T* const made = new (slot->bytes.data()) T(args...);
  slot->device = static_cast<int32_t>(this - sheet.devices.data());
  slot->kind.store(kind, std::memory_order_release);
  return *made;
}

Tally& Device::add_tally() {
  auto& made = place<Tally>(SlotKind::kTally);
  enlist(made);
  return made;
}

ThreadTally& Device::add_thread_tally() {
  auto& made = place<ThreadTally>(SlotKind::kThreadTally, *this);
  enlist(made);
  return made;
}

void Device::unlink() {
  tallies_.store(nullptr, std::memory_order_relaxed);
  holdings_.store(nullptr, std::memory_order_relaxed);
}

void Device::link(Tally& tally) { push(tallies_, tally, &Tally::next_); }

void Device::link(ThreadTally& holdings) {
  link(static_cast<Tally&>(holdings));
  push(holdings_, holdings, &ThreadTally::next_holdings_);
}

void Device::enlist(Tally& tally) {
  used_.store(true, std::memory_order_relaxed);
  link(tally);
}

void Device::enlist(ThreadTally& holdings) {
  const void* first = nullptr;
  if (!first_thread_.compare_exchange_strong(first, &this_thread_mark, std::memory_order_relaxed) &&
      first != &this_thread_mark && !several_threads_.exchange(true, std::memory_order_relaxed))
    look(Ends::kBoth);
  enlisted_.fetch_add(1, std::memory_order_relaxed);
  used_.store(true, std::memory_order_relaxed);
  link(holdings);
}

int64_t Device::margin() const {
  if (!several_threads_.load(std::memory_order_relaxed)) return 0;
  return (peak_bound.load(std::memory_order_relaxed) + 1) / 2;
}

void Device::told_more(int64_t more) {
  const int64_t most = most_live_.fetch_add(more, std::memory_order_relaxed) + more;
  const int64_t beyond = patience(slack(), enlisted_.load(std::memory_order_relaxed));
  if (most <= peak_live_.load(std::memory_order_relaxed) + beyond) return;
  look(margin() == 0 ? Ends::kHigh : Ends::kBoth);
}

void Device::told_less(int64_t less) {
  const int64_t least = least_live_.fetch_sub(less, std::memory_order_relaxed) - less;
  const auto reserved = static_cast<int64_t>(reserved_.load(std::memory_order_relaxed));
  if (margin() == 0) return look(Ends::kLow);
  const int64_t beyond = patience(slack(), enlisted_.load(std::memory_order_relaxed));
  if (reserved - least > peak_cached_.load(std::memory_order_relaxed) + beyond) look(Ends::kBoth);
}

// Here the running sum is exact, while reading one thread after the other is not.
void Device::told_all(int64_t change) {
  const int64_t live = told_live_.fetch_add(change, std::memory_order_relaxed) + change;
  const auto reserved = static_cast<int64_t>(reserved_.load(std::memory_order_relaxed));
  if (live > peak_live_.load(std::memory_order_relaxed)) look(Ends::kBoth);
  raise(peak_live_, live);
  if (change < 0) raise(peak_cached_, reserved - live);
}

// Adds up the holdings of all threads and resets the given ends of their spans. With one thread only the end
// that was crossed: its loop must not come here at every iteration.
void Device::look(Ends ends) {
  const int64_t bound = peak_bound.load(std::memory_order_relaxed);
  const int64_t margin = this->margin();
  int64_t live = 0;
  int64_t asked = 0;
  // If the owner moves an end at the same moment, the owner's value is newer and stays.
  const auto begin_anew = [](std::atomic<int64_t>& end, int64_t value, std::atomic<int64_t>& sum) {
    int64_t old = end.load(std::memory_order_relaxed);
    if (end.compare_exchange_strong(old, value, std::memory_order_relaxed))
      sum.fetch_add(value - old, std::memory_order_relaxed);
  };
  for (ThreadTally* one = holdings_.load(std::memory_order_acquire); one != nullptr;
       one = one->next_holdings_) {
    const int64_t held = one->live();
    live += held;
    asked += one->asked();
    if (bound == 0) continue;
    if (ends != Ends::kLow) begin_anew(one->high_, held + margin, most_live_);
    if (ends != Ends::kHigh) begin_anew(one->low_, held - margin, least_live_);
  }
  if (live > peak_live_.load(std::memory_order_relaxed) || bound == 0) raise(peak_asked_, asked);
  if (bound == 0) return;
  raise(peak_live_, live);
  // A new segment is about to be handed out: only a free shows how much is really idle.
  if (ends != Ends::kHigh)
    raise(peak_cached_, static_cast<int64_t>(reserved_.load(std::memory_order_relaxed)) - live);
}

void Device::reserve(uint64_t bytes) {
  raise(peak_reserved_, reserved_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
  if (margin() != 0) return;
  // More can be idle than at the last look: make the next free report.
  for (ThreadTally* one = holdings_.load(std::memory_order_acquire); one != nullptr;
       one = one->next_holdings_)
    least_live_.fetch_add(kAbove - one->low_.exchange(kAbove, std::memory_order_relaxed),
                          std::memory_order_relaxed);
}

void Device::release(uint64_t bytes) { reserved_.fetch_sub(bytes, std::memory_order_relaxed); }

DeviceSums Device::read() const {
  DeviceSums sums;
  int64_t live = 0;
  int64_t asked = 0;
  // Before the counters, of which first uses are one: so no more seem reused than were.
  for (const ThreadTally* one = holdings_.load(std::memory_order_acquire); one != nullptr;
       one = one->next_holdings_) {
    live += one->live();
    asked += one->asked();
    for (size_t i = 0; i < kSizeBuckets; ++i) sums.sizes[i] += one->sizes_[i].load(std::memory_order_relaxed);
  }
  std::array<uint64_t, kDeviceCounters> total{};
  for (size_t i = 0; i < kDeviceCounters; ++i) total[i] = counts_[i].load(std::memory_order_relaxed);
  for (const Tally* tally = tallies_.load(std::memory_order_acquire); tally != nullptr;
       tally = tally->next_) {
    for (size_t i = 0; i < kDeviceCounters; ++i)
      total[i] += tally->counts_[i].load(std::memory_order_relaxed);
  }
#define CUPOOL_DEVICE(name, doc) sums.name = total[static_cast<size_t>(DeviceCounter::name)];
#include "stats/counters.def"
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
  // Holdings of threads are read one after the other: clamp what cannot be.
  sums.peak_cached_bytes = std::min(sums.peak_cached_bytes, sums.peak_reserved_bytes);
  const uint64_t not_at_once = sums.hits_after_wait + sums.misses + sums.native_allocations;
  sums.hits_at_once = positive(static_cast<int64_t>(sums.allocations - not_at_once));
  sums.thread_hits = positive(static_cast<int64_t>(sums.hits_at_once - sums.slab_hits - sums.range_hits));
  sums.reused = positive(static_cast<int64_t>(sums.allocations - sums.first_uses - sums.native_allocations));
  // With a bound of 0 threads report every change.
  sums.peak_live_most_bytes = sums.peak_live_bytes + static_cast<uint64_t>(slack());
  return sums;
}

void Device::reset_peaks() {
  const DeviceSums now = read();
  peak_live_.store(static_cast<int64_t>(now.live_bytes), std::memory_order_relaxed);
  peak_asked_.store(static_cast<int64_t>(now.asked_bytes), std::memory_order_relaxed);
  peak_cached_.store(static_cast<int64_t>(now.cached_bytes), std::memory_order_relaxed);
  peak_reserved_.store(now.reserved_bytes, std::memory_order_relaxed);
  look(Ends::kBoth);
}

void Device::forget_after_fork() {
  for (auto& word : counts_) word.store(0, std::memory_order_relaxed);
  used_.store(false, std::memory_order_relaxed);
  tallies_.store(nullptr, std::memory_order_relaxed);
  holdings_.store(nullptr, std::memory_order_relaxed);
  for (auto* word :
       {&told_live_, &enlisted_, &most_live_, &least_live_, &peak_live_, &peak_asked_, &peak_cached_}) {
    word->store(0, std::memory_order_relaxed);
  }
  first_thread_.store(nullptr, std::memory_order_relaxed);
  several_threads_.store(false, std::memory_order_relaxed);
  reserved_.store(0, std::memory_order_relaxed);
  peak_reserved_.store(0, std::memory_order_relaxed);
}

void DeviceSums::fold_peaks() {
  peak_live_bytes = std::min(peak_live_bytes, peak_reserved_bytes);
  peak_asked_bytes = std::min(peak_asked_bytes, peak_live_bytes);
  peak_live_most_bytes = std::clamp(peak_live_most_bytes, peak_live_bytes, peak_reserved_bytes);
  idle_at_peak_bytes = peak_reserved_bytes - peak_live_bytes;
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

void DeviceSums::add_spilled(const DeviceSums& host) {
#define CUPOOL_DEVICE(name, doc) name += host.name;
#include "stats/counters.def"
  for (uint64_t DeviceSums::*const count :
       {&DeviceSums::allocations, &DeviceSums::frees, &DeviceSums::hits_at_once, &DeviceSums::thread_hits,
        &DeviceSums::reused})
    this->*count += host.*count;
  for (size_t i = 0; i < kSizeBuckets; ++i) sizes[i] += host.sizes[i];
  host_live_bytes = host.live_bytes;
  host_reserved_bytes = host.reserved_bytes;
  peak_host_reserved_bytes = host.peak_reserved_bytes;
}

namespace {
size_t index_of(int number) { return static_cast<size_t>(std::clamp(number, 0, kMostDevices - 1)); }
}  // namespace

Device& device(int number) { return detail::sheet.devices[index_of(number)]; }
Device& spilled(int number) { return detail::sheet.devices[kMostDevices + index_of(number)]; }

void set_peak_bound(int64_t bytes) { peak_bound.store(bytes, std::memory_order_relaxed); }

}  // namespace cupool::stats
