// A listener that reports bad frees (CUPOOL_CHECK): a table of the call stacks (trace/stacks.hpp) of the
// allocation and free of every block of the pool, and a message for each free that was refused because of its
// pointer. One table under one lock: a debug aid need not be fast. The blocks freed longest ago are forgotten
// first; while the host is short of memory, no new records are made.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "base/after_fork.hpp"
#include "base/host_memory.hpp"
#include "base/lock.hpp"
#include "base/log.hpp"
#include "config/options.hpp"
#include "hooks/observe/observer.hpp"
#include "hooks/observe/start_stacks.hpp"
#include "report/facts.hpp"
#include "report/holders.hpp"
#include "trace/stacks.hpp"

namespace cupool::hooks::observe {

extern const Listener history_listener;

namespace {

class History {
 public:
  struct Life {
    uint64_t start = 0;
    uint64_t bytes = 0;
    bool freed = false;
    uint32_t allocated = 0;  // its stacks
    uint32_t returned = 0;
  };

  void note_allocation(uint64_t start, uint64_t bytes) {
    const uint32_t here = trace::take_stack();
    Guard hold(lock_);
    // Drop every older record that overlaps, even if it was larger or began elsewhere.
    auto before = lives_.upper_bound(start);
    if (before != lives_.begin() && start - std::prev(before)->first < std::prev(before)->second.bytes)
      --before;
    while (before != lives_.end() && before->first < start + bytes) before = lives_.erase(before);
    if (!host::is_short()) lives_[start] = {start, bytes, false, here, 0};
  }

  // Only a live block is recorded.
  void note_free(uint64_t start) {
    const uint32_t here = trace::take_stack();
    Guard hold(lock_);
    const auto found = lives_.find(start);
    if (found == lives_.end() || found->second.freed) return;
    if (host::is_short()) {
      lives_.erase(found);
      return;
    }
    found->second.freed = true;
    found->second.returned = here;
    freed_[++ages_] = start;
    while (freed_.size() > kMostFreed) {
      const auto oldest = lives_.find(freed_.begin()->second);
      if (oldest != lives_.end() && oldest->second.freed) lives_.erase(oldest);
      freed_.erase(freed_.begin());
    }
  }

  // The live block at that address, or the last one that covered it.
  bool find(uint64_t address, Life* out) {
    Guard hold(lock_);
    auto next = lives_.upper_bound(address);
    if (next == lives_.begin()) return false;
    --next;
    if (address - next->first >= next->second.bytes) return false;
    *out = next->second;
    return true;
  }

 private:
  static constexpr size_t kMostFreed = 1 << 16;

  Lock lock_{Rank::kHistory};
  std::map<uint64_t, Life> lives_ CUPOOL_GUARDED_BY(lock_);
  std::map<uint64_t, uint64_t> freed_ CUPOOL_GUARDED_BY(lock_);  // age to address
  uint64_t ages_ CUPOOL_GUARDED_BY(lock_) = 0;
};

constinit std::atomic<History*> known_blocks{nullptr};
CUPOOL_AFTER_FORK(history_after_fork, [] { known_blocks.store(nullptr, std::memory_order_relaxed); });

// Created with the first block and never destroyed.
History& history() {
  History* found = known_blocks.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  auto* const made = new History;
  if (known_blocks.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *found;
}

bool is_wanted() {
  if (!config::options().check) return false;
  start_stacks();
  return true;
}

void allocated(const Allocated& what) {
  if (what.server == Server::kPool) history().note_allocation(what.address, what.bytes);
}

void freed(const Freed& what) {
  if (what.server == Server::kPool) history().note_free(what.address);
}

// With the stacks of this call and of the earlier ones.
void failed(const Failed& what) {
  if (!what.is_bad_pointer) return;
  History::Life life;
  const bool known = history().find(what.address, &life);
  const report::WhoText who = report::who();
  const auto address = static_cast<unsigned long long>(what.address);
  const auto inside = static_cast<unsigned long long>(what.address - life.start);
  const auto bytes = static_cast<unsigned long long>(life.bytes);
  const auto start = static_cast<unsigned long long>(life.start);
  if (!known) {
    log::line("{}: free of {:#x}, which was never allocated, or not through this library; freed here:", who,
              address);
  } else if (inside != 0) {
    log::line(
        "{}: free of {:#x}, an interior pointer: it is {} bytes inside a block of {} bytes at {:#x}{}; freed "
        "here:",
        who, address, inside, bytes, start, life.freed ? " that was freed before" : "");
  } else {
    log::line("{}: double free of {:#x}, a block of {} bytes; freed again here:", who, address, bytes);
  }
  report::print_stack(who, trace::take_stack());
  if (known && life.freed) {
    log::line("{}:   freed before here:", who);
    report::print_stack(who, life.returned);
  }
  if (known) {
    log::line("{}:   allocated here:", who);
    report::print_stack(who, life.allocated);
  }
}

}  // namespace

constinit const Listener history_listener{
    .is_wanted = is_wanted, .allocated = allocated, .freed = freed, .failed = failed};

}  // namespace cupool::hooks::observe
