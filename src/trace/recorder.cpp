// See recorder.hpp. A ring is found through a thread-local pointer and is in a list that only grows; the ring
// of a thread that has ended is taken over by a new thread once it is empty.
#include "trace/recorder.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "base/filters.hpp"
#include "base/pages.hpp"
#include "base/preserve_errno.hpp"
#include "trace/gatherer.hpp"
#include "trace/python.hpp"
#include "trace/rings.hpp"
#include "trace/stacks.hpp"

namespace cupool::trace {

namespace detail {
constinit std::atomic<bool> on{false};
}

constinit std::atomic<Ring*> rings{nullptr};

namespace {

constexpr size_t kMostRings = 4096;

constinit thread_local Ring* own_ring = nullptr;
// There was no room for one; what such threads do is lost, and counted here.
constinit thread_local bool has_no_ring = false;
constinit std::atomic<uint64_t> lost_without_ring{0};
constinit std::atomic<size_t> ring_count{0};

bool has_ended(int thread) { return syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH; }

Ring* find_ring() {
  const PreserveErrno preserve;
  const int self = this_thread();
  for (Ring* ring = rings.load(std::memory_order_acquire); ring != nullptr; ring = ring->next) {
    int owner = ring->thread.load(std::memory_order_acquire);
    if ((owner == self || has_ended(owner)) && ring->is_empty() &&
        ring->thread.compare_exchange_strong(owner, self, std::memory_order_acq_rel)) {
      ring->is_busy = false;
      return ring;
    }
  }
  if (ring_count.fetch_add(1, std::memory_order_relaxed) >= kMostRings) return nullptr;
  void* const memory = map_pages(sizeof(Ring));
  if (memory == nullptr) return nullptr;
  auto* const ring = new (memory) Ring;
  ring->thread.store(self, std::memory_order_relaxed);
  ring->next = rings.load(std::memory_order_relaxed);
  while (!rings.compare_exchange_weak(ring->next, ring, std::memory_order_acq_rel)) {
  }
  return ring;
}

constinit std::atomic<void (*)()> wake_gatherer{nullptr};

// The file thread gathers, if there is one; else, or if it does not come, this thread does. (Under a new
// filter of system calls nothing is opened.)
void make_room(Ring& ring, size_t words) {
  constexpr int kMostTurns = 200;
  constexpr uint64_t kMostPatience = 1'000'000'000;
  if (ring.is_given_up) return;
  const PreserveErrno preserve;
  const auto wake = wake_gatherer.load(std::memory_order_relaxed);
  if (wake != nullptr) wake();
  for (int turn = 0; wake != nullptr && turn < kMostTurns && !ring.has_room(words); ++turn)
    Lock::wait_a_little(turn);
  // The gatherer may stand in a write to a disk that hangs.
  const uint64_t before = now_ns();
  while (!ring.has_room(words) && !knows_new_filter() && now_ns() - before < kMostPatience)
    gatherer.gather(nullptr);
  ring.is_given_up = !ring.has_room(words);
}

// The file thread is late: the machine is busy, or it is in a call that takes long. In the latter case nobody
// waits for it.
void gather_late() {
  const PreserveErrno preserve;
  uint64_t due = gathering_due.load(std::memory_order_relaxed);
  const uint64_t now = now_ns();
  // (One thread is enough; if it can do nothing, another look is due soon.)
  if (now <= due || !gathering_due.compare_exchange_strong(due, now + kBetweenLooks)) return;
  if (!knows_new_filter()) gatherer.gather_if_nobody_does();
}

}  // namespace

constinit std::atomic<uint64_t> gathering_due{~uint64_t{0}};

uint64_t take_lost_without_ring() { return lost_without_ring.exchange(0, std::memory_order_relaxed); }

void forget_rings_after_fork() {
  rings.store(nullptr, std::memory_order_relaxed);
  ring_count.store(0, std::memory_order_relaxed);
  own_ring = nullptr;
  has_no_ring = false;
  lost_without_ring.store(0, std::memory_order_relaxed);
}

void set_waker(void (*wake)()) { wake_gatherer.store(wake, std::memory_order_relaxed); }

bool begin(const About& about, const Settings& settings) { return gatherer.begin(about, settings); }

void gather_now(int* kept) {
  // So that what is loaded and unloaded past our doors is known soon.
  if (is_on() && stack_tables.modules.map() != 0) {
    const uint32_t before = stack_tables.modules.map();
    // (The loader's big lock is held while libraries are loaded: it is asked for a good reason only.)
    if (stack_tables.modules.look() != before && stack_tables.modules.has_path_with("python"))
      look_for_python();
  }
  gatherer.gather(kept);
}

bool end() { return gatherer.end(); }

void finish() { gatherer.finish(); }

void abandon() { detail::on.store(false, std::memory_order_release); }

bool visit_kept(Put put, void* argument) { return gatherer.visit_kept(put, argument); }

bool visit_live(See see, void* argument) { return gatherer.visit_live(see, argument); }

bool holds(uint64_t address, uint8_t kind) { return gatherer.holds(address, kind); }

const char* path() { return gatherer.path(); }

bool is_written() { return is_on() && gatherer.is_written_now(); }

bool find_block(uint64_t address, LiveSet::Item* out) { return gatherer.find_block(address, out); }

bool is_kept() { return is_on() && gatherer.is_kept(); }

void detail::record(Event event, uint64_t time, const uint64_t* words, size_t count, From from) {
  if (!is_on()) [[unlikely]]
    return;
  Ring* ring = own_ring;
  if (ring == nullptr) [[unlikely]] {
    if (!has_no_ring) ring = own_ring = find_ring();
    has_no_ring = ring == nullptr;
    if (has_no_ring) {
      lost_without_ring.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  if (ring->is_busy) [[unlikely]]
    return ring->lose();
  ring->is_busy = true;
  std::atomic_signal_fence(std::memory_order_acq_rel);
  const size_t wanted = count + Ring::kReserve;
  if (from == From::kEntry && !ring->has_room(wanted)) [[unlikely]]
    make_room(*ring, wanted);
  if (ring->has_room(count)) [[likely]] {
    ring->put(event, time, words, count);
    // (One that is given up is waited for again when there is room for more than this.)
    if (ring->is_given_up) ring->is_given_up = !ring->has_room(wanted);
  } else {
    ring->lose();
  }
  if (ring->is_half_full()) [[unlikely]] {
    const PreserveErrno preserve;
    if (const auto wake = wake_gatherer.load(std::memory_order_relaxed)) wake();
  }
  if (time > gathering_due.load(std::memory_order_relaxed) && from == From::kEntry) [[unlikely]]
    gather_late();
  std::atomic_signal_fence(std::memory_order_acq_rel);
  ring->is_busy = false;
}

}  // namespace cupool::trace
