// Where every count of the process lies: one sheet with the devices, the rare events and what ended threads
// have left, and the slots, of which each thread and each list of a pool takes one for its counts. Both are
// whole pages, and nothing else is in them: lay_over() puts them into a file, in which another process reads
// the counts at any moment, after a crash too, and the code that counts does not change. No pointer in them
// is followed by such a reader (sums_of). No lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

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

// The counts of one thread.
struct alignas(128) Block {
  std::array<std::atomic<uint64_t>, kCounters> counts{};
  Block* next = nullptr;  // in the registry, for good; under its lock
  bool in_use = false;    // by a living thread; under the registry's lock
  int unannounced = 0;    // the thread's number, if we will not learn of its end
};

// The largest page of the machine: a file is laid over whole ones.
#ifdef __aarch64__
inline constexpr size_t kSheetPage = 65536;
#else
inline constexpr size_t kSheetPage = 4096;
#endif

struct alignas(kSheetPage) Sheet {
  // The memory of each device, and then what has spilled from each.
  std::array<Device, 2 * kMostDevices> devices{};
  std::array<std::atomic<uint64_t>, kEvents> events{};
  std::array<std::atomic<uint64_t>, kCounters>
      retired{};                         // of ended threads; written under the registry's lock
  std::atomic<uint32_t> slots_taken{0};  // also beyond the last: some counts are elsewhere
};

enum class SlotKind : uint32_t { kFree, kBlock, kTally, kThreadTally };

struct alignas(128) Slot {
  std::array<std::byte, sizeof(ThreadTally)> bytes;
  std::atomic<SlotKind> kind;  // stored when the bytes are what it says
  int32_t device;
};
static_assert(sizeof(Block) <= sizeof(ThreadTally) && sizeof(Tally) <= sizeof(ThreadTally));

struct alignas(kSheetPage) Slots {
  std::array<Slot, 2048> all;
};

namespace detail {
[[gnu::visibility("hidden")]] extern constinit Sheet sheet;
}

// A slot of its own for good; null: all are taken.
Slot* take_slot();

// Lays the sheet and the slots over the file, from `at` on; as stats::share().
inline constexpr uint64_t kSharedBytes = sizeof(Sheet) + sizeof(Slots);
bool lay_over(int file, uint64_t at);
// In a fork child, before anything is counted or forgotten: the file stays the parent's. False: the child's
// counts go there too, for want of memory.
bool unshare_after_fork();
// In a fork child: what the parent's pools counted is not this process's.
void forget_slots_after_fork();

}  // namespace cupool::stats
