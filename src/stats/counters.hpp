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

#include "stats/device.hpp"

namespace cupool::stats {

enum class Counter : unsigned {
#define CUPOOL_COUNTER(name, doc) name,
#include "stats/counters.def"
};
enum class Event : unsigned {
#define CUPOOL_EVENT(name, doc) name,
#include "stats/counters.def"
};

inline constexpr size_t kCounters = 0
#define CUPOOL_COUNTER(name, doc) +1
#include "stats/counters.def"
    ;
inline constexpr size_t kEvents = 0
#define CUPOOL_EVENT(name, doc) +1
#include "stats/counters.def"
    ;

struct alignas(128) Block {
  std::array<std::atomic<uint64_t>, kCounters> counts{};
  Block* next = nullptr;  // in the registry, for good; under its lock
  bool in_use = false;    // by a living thread; under the registry's lock
  int unannounced = 0;    // the thread's number, if we will not learn of its end
};

namespace detail {
inline constinit thread_local Block* own_block = nullptr;
inline constinit thread_local bool thread_has_ended = false;
inline constinit std::array<std::atomic<uint64_t>, kEvents> events{};
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
  detail::events[static_cast<size_t>(event)].fetch_add(amount, std::memory_order_relaxed);
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
