// Counting without a shared cache line: each thread adds to a block that it alone writes, by a plain load and
// store. A block is registered at the thread's first count; at the thread's end it is added to the retired
// sums and reused. Readers add up all blocks under the registry's lock: they see every count that happened
// before them, never a torn one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stats/sheet.hpp"

namespace cupool::stats {

namespace detail {
inline constinit thread_local Block* own_block = nullptr;
inline constinit thread_local bool thread_has_ended = false;
Block* register_thread();  // null when out of host memory: the count is lost
}  // namespace detail

[[gnu::always_inline]] inline void count(Counter counter, uint64_t amount = 1) {
  Block* block = detail::own_block;
  if (block == nullptr) [[unlikely]] {
    block = detail::register_thread();
    if (block == nullptr) return;
  }
  auto& word = block->counts[static_cast<size_t>(counter)];
  word.store(word.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

inline void count(Event event, uint64_t amount = 1) {
  detail::sheet.events[static_cast<size_t>(event)].fetch_add(amount, std::memory_order_relaxed);
}

// Everything counted so far by all threads, ended ones too. `devices` stays empty here: adding up devices
// takes more than counters, and is done by report/.
struct Sums {
#define CUPOOL_COUNTER(name, doc) uint64_t name = 0;
#define CUPOOL_EVENT(name, doc) uint64_t name = 0;
#include "stats/counters.def"
  DeviceSums devices;
};
// kNoLock: in a signal handler, where the interrupted thread may hold the lock. A thread that ends meanwhile
// may then be missed or counted twice. kPatient: at exit, which a signal handler may have called; the lock is
// taken if it becomes free within a moment.
enum class Reading { kLocked, kPatient, kNoLock };
Sums sums(Reading reading = Reading::kLocked);

// The same of a process whose sheet and slots were copied here, its devices included (those in use come in
// `used`, which has kMostDevices). Whatever the bytes are, this ends. Changes links in the copy.
Sums sums_of(Sheet& sheet, Slots& slots, DeviceSums* used, size_t* count);
// Whether they are all of its counts.
bool is_whole(const Sheet& sheet);

// From now on all counts lie in the file, from `at` on, where it has room for kSharedBytes. False: they stay
// where they are. What another thread counts at this very moment may be lost. pre: `at` is a multiple of
// kSheetPage.
bool share(int file, uint64_t at);

struct CounterInfo {
  const char* name;
  const char* doc;
};

// Calls f(CounterInfo, value) for every count and figure of a device, in the order of the list.
template <typename F>
void visit(const DeviceSums& sums, F&& f) {
#define CUPOOL_DEVICE(name, doc) f(CounterInfo{#name, doc}, sums.name);
#define CUPOOL_FIGURE(name, doc) f(CounterInfo{#name, doc}, sums.name);
#include "stats/counters.def"
}
// The same for the process: the sums over its devices, then the counters without a device.
template <typename F>
void visit(const Sums& sums, F&& f) {
  visit(sums.devices, f);
#define CUPOOL_COUNTER(name, doc) f(CounterInfo{#name, doc}, sums.name);
#define CUPOOL_EVENT(name, doc) f(CounterInfo{#name, doc}, sums.name);
#include "stats/counters.def"
}

// The value of that name in `sums`; false: there is none.
template <typename AnySums>
bool find(const AnySums& sums, std::string_view name, uint64_t* value) {
  bool found = false;
  visit(sums, [&](const CounterInfo& info, uint64_t one) {
    if (name != info.name) return;
    *value = one;
    found = true;
  });
  return found;
}

// In a fork child: the parent's counts are not this process's.
void forget_after_fork();

}  // namespace cupool::stats
