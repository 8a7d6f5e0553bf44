// The registry of thread blocks. Blocks lie in slots of the sheet, or in pages of their own, not in malloc: a
// thread's first count may come while the program's malloc is in any state, and a block outlives its thread.
// The lock is never held across foreign code.
#include "stats/counters.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "base/after_fork.hpp"
#include "base/lock.hpp"
#include "base/pages.hpp"

namespace cupool::stats {
namespace {

class Registry {
 public:
  Block* take() CUPOOL_EXCLUDES(lock_) {
    const Guard guard(lock_);
    if (!has_key_) has_key_ = pthread_key_create(&key_, thread_ends) == 0;
    Block* block = find_idle();
    if (block == nullptr) block = carve();
    if (block == nullptr) return nullptr;
    block->in_use = true;
    // If the thread's destructors already ran, ours may not be called again.
    const bool announced = has_key_ && pthread_setspecific(key_, block) == 0 && !detail::thread_has_ended;
    block->unannounced = announced ? 0 : own_thread();
    any_unannounced_ = any_unannounced_ || !announced;
    return block;
  }

  void retire(Block* block) CUPOOL_EXCLUDES(lock_) {
    const Guard guard(lock_);
    retire_locked(block);
  }

  void retire_locked(Block* block) CUPOOL_REQUIRES(lock_) {
    for (size_t i = 0; i < kCounters; ++i) {
      // In this order: a process that is killed in between has counted too little, not too much.
      const uint64_t counted = block->counts[i].exchange(0, std::memory_order_relaxed);
      detail::sheet.retired[i].fetch_add(counted, std::memory_order_relaxed);
    }
    block->in_use = false;
  }

  std::array<uint64_t, kCounters> add_up(Reading reading) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
    if (reading == Reading::kNoLock) return add_up_now();
    if (reading == Reading::kLocked) {
      lock_.lock();
    } else if (!lock_.try_lock_for_a_moment()) {
      return add_up_now();
    }
    const auto total = add_up_now();
    lock_.unlock();
    return total;
  }

  // Blocks are only ever added, at the head, and never unmapped.
  std::array<uint64_t, kCounters> add_up_now() const CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
    std::array<uint64_t, kCounters> total;
    for (size_t i = 0; i < kCounters; ++i)
      total[i] = detail::sheet.retired[i].load(std::memory_order_relaxed);
    for (const Block* block = first_; block != nullptr; block = block->next) {
      for (size_t i = 0; i < kCounters; ++i) total[i] += block->counts[i].load(std::memory_order_relaxed);
    }
    return total;
  }

  bool share(int file, uint64_t at) CUPOOL_EXCLUDES(lock_) {
    const Guard guard(lock_);
    return lay_over(file, at);
  }

  void forget_after_fork(const Block* own) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
    lock_.reset_after_fork();
    for (auto& word : detail::sheet.retired) word.store(0, std::memory_order_relaxed);
    for (Block* block = first_; block != nullptr; block = block->next) {
      for (auto& word : block->counts) word.store(0, std::memory_order_relaxed);
      block->in_use = block == own;
    }
  }

 private:
  static void thread_ends(void* block);

  Block* find_idle() CUPOOL_REQUIRES(lock_) {
    for (Block* block = first_; block != nullptr; block = block->next) {
      if (!block->in_use) return block;
    }
    if (!any_unannounced_) return nullptr;
    for (Block* block = first_; block != nullptr; block = block->next) {
      if (block->unannounced == 0 || is_alive(block->unannounced)) continue;
      retire_locked(block);
      return block;
    }
    return nullptr;
  }

  static int own_thread() { return static_cast<int>(syscall(SYS_gettid)); }
  static bool is_alive(int thread) {
    const int saved_errno = errno;
    const bool alive = syscall(SYS_tgkill, getpid(), thread, 0) == 0 || errno != ESRCH;
    errno = saved_errno;
    return alive;
  }

  Block* carve() CUPOOL_REQUIRES(lock_) {
    Slot* const slot = take_slot();
    void* const room = slot != nullptr ? static_cast<void*>(slot->bytes.data()) : map_pages(sizeof(Block));
    if (room == nullptr) return nullptr;
    auto* const block = new (room) Block;
    if (slot != nullptr) slot->kind.store(SlotKind::kBlock, std::memory_order_release);
    block->next = first_;
    first_ = block;
    return block;
  }

  Lock lock_{Rank::kCounters};
  Block* first_ CUPOOL_GUARDED_BY(lock_) = nullptr;
  pthread_key_t key_ CUPOOL_GUARDED_BY(lock_) = 0;
  bool has_key_ CUPOOL_GUARDED_BY(lock_) = false;
  bool any_unannounced_ CUPOOL_GUARDED_BY(lock_) = false;
};

constinit Registry registry;

// A later destructor of the same thread may count again: it registers anew, and this runs again.
void Registry::thread_ends(void* block) {
  detail::own_block = nullptr;
  detail::thread_has_ended = true;
  registry.retire(static_cast<Block*>(block));
}

}  // namespace

Block* detail::register_thread() {
  own_block = registry.take();
  return own_block;
}

namespace {

Sums sums_of_counts(const std::array<uint64_t, kCounters>& total, const Sheet& sheet) {
  Sums out;
#define CUPOOL_COUNTER(name, doc) out.name = total[static_cast<size_t>(Counter::name)];
#define CUPOOL_EVENT(name, doc) \
  out.name = sheet.events[static_cast<size_t>(Event::name)].load(std::memory_order_relaxed);
#include "stats/counters.def"
  return out;
}

}  // namespace

Sums sums(Reading reading) { return sums_of_counts(registry.add_up(reading), detail::sheet); }

Sums sums_of(Sheet& sheet, Slots& slots, DeviceSums* used, size_t* count) {
  std::array<uint64_t, kCounters> total;
  for (size_t i = 0; i < kCounters; ++i) total[i] = sheet.retired[i].load(std::memory_order_relaxed);
  for (Device& device : sheet.devices) device.unlink();
  for (Slot& slot : slots.all) {
    const SlotKind kind = slot.kind.load(std::memory_order_relaxed);
    if (kind == SlotKind::kBlock) {
      const auto& block = *reinterpret_cast<const Block*>(slot.bytes.data());
      for (size_t i = 0; i < kCounters; ++i) total[i] += block.counts[i].load(std::memory_order_relaxed);
    } else if (slot.device >= 0 && slot.device < 2 * kMostDevices) {
      Device& device = sheet.devices[static_cast<size_t>(slot.device)];
      if (kind == SlotKind::kTally) device.link(*reinterpret_cast<Tally*>(slot.bytes.data()));
      if (kind == SlotKind::kThreadTally) device.link(*reinterpret_cast<ThreadTally*>(slot.bytes.data()));
    }
  }
  *count = 0;
  for (size_t i = 0; i < kMostDevices; ++i) {
    if (!sheet.devices[i].is_used()) continue;
    DeviceSums& sums = used[(*count)++] = sheet.devices[i].read();
    sums.add_spilled(sheet.devices[kMostDevices + i].read());
  }
  return sums_of_counts(total, sheet);
}

bool share(int file, uint64_t at) { return registry.share(file, at); }

bool is_whole(const Sheet& sheet) {
  return sheet.slots_taken.load(std::memory_order_relaxed) <= std::tuple_size_v<decltype(Slots::all)>;
}

void forget_after_fork() {
  registry.forget_after_fork(detail::own_block);
  for (auto& word : detail::sheet.events) word.store(0, std::memory_order_relaxed);
  for (int i = 0; i < kMostDevices; ++i) {
    device(i).forget_after_fork();
    spilled(i).forget_after_fork();
  }
  forget_slots_after_fork();
}
CUPOOL_AFTER_FORK(after_fork, forget_after_fork);

}  // namespace cupool::stats
