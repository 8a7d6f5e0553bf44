// See gatherer.hpp: from rings to blocks, and the ends of a trace. How blocks are made is in
// gathered_blocks.cpp.
#include "trace/gatherer.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/after_fork.hpp"
#include "trace/rings.hpp"
#include "trace/stacks.hpp"

namespace cupool::trace {

constinit Gatherer gatherer;

namespace {

CUPOOL_AFTER_FORK(trace_after_fork, [] {
  forget_rings_after_fork();
  gatherer.forget_after_fork();
});

}  // namespace

int this_thread() { return static_cast<int>(syscall(SYS_gettid)); }

bool Gatherer::enter() {
  const int self = this_thread();
  if (gathering_thread_.load(std::memory_order_relaxed) == self || !lock_.try_lock_for_a_moment())
    return false;
  gathering_thread_.store(self, std::memory_order_relaxed);
  return true;
}

bool Gatherer::enter_at_once() {
  if (!lock_.try_lock()) return false;
  gathering_thread_.store(this_thread(), std::memory_order_relaxed);
  return true;
}

void Gatherer::leave() {
  gathering_thread_.store(0, std::memory_order_relaxed);
  lock_.unlock();
}

void Gatherer::forget_after_fork() {
  lock_.reset_after_fork();
  gathering_thread_.store(0, std::memory_order_relaxed);
  detail::on.store(false, std::memory_order_relaxed);
  kept_.forget_after_fork();
  live_.clear();
  settings_ = {};
  gathering_due.store(~uint64_t{0}, std::memory_order_relaxed);
}

bool Gatherer::begin(const About& about, const Settings& settings) {
  Guard hold(lock_);
  // What is live is known already.
  const bool goes_on = is_on();
  if (goes_on) gather_all(nullptr);
  const bool stays = goes_on || settings.stays;
  const bool remembers = settings.remembers_frees || (goes_on && settings_.remembers_frees);
  about_ = about;
  settings_ = settings;
  settings_.stays = stays;
  settings_.remembers_frees = remembers;
  if (settings.kept_bytes != 0) {
    if (!kept_.begin(settings.kept_bytes)) return false;
    settings_.live_set_every = settings.kept_bytes / 4;
  } else if (settings.has_output) {
    place_.begin(settings.path, settings.device, settings.inode);
  }
  sequence_ = 0;
  used_ = indexed_ = 0;
  since_live_set_ = live_set_bytes_ = last_index_ = 0;
  forget_told_stacks();
  if (goes_on) {
    began_ = round_ = round_before_ = now_ns();
    if (is_written()) make_about();
    write_stacks(nullptr);
    write_live_set(nullptr);
    flush(nullptr);
    return true;
  }
  live_.clear();
  if (remembers) live_.remember_frees();
  // What threads told of an earlier trace when that had ended.
  for (Ring* ring = rings.load(std::memory_order_acquire); ring != nullptr; ring = ring->next) {
    ring->mark();
    ring->gather([](Event, uint64_t, const uint64_t*) { return true; });
    ring->take_lost();
  }
  began_ = round_ = round_before_ = now_ns();
  if (is_written()) make_about();
  detail::on.store(true, std::memory_order_release);
  if (is_written()) flush(nullptr);
  return true;
}

// ---- Gathering. (clang does not follow a lock into a lambda.)

// Keeps the live set.
void Gatherer::follow(Event event, uint64_t time, uint32_t thread, const uint64_t* words) {
  if (event == Event::kAllocated) {
    told::Allocated what;
    memcpy(static_cast<void*>(&what), words, sizeof what);
    live_.allocated(time, thread, what);
  } else if (event == Event::kLive) {
    told::Live live;
    memcpy(static_cast<void*>(&live), words, sizeof live);
    told::Allocated what{};
    what.address = live.address;
    what.asked = live.asked;
    what.more = live.more;
    what.stack = live.stack;
    what.call = live.call;
    what.kind = live.kind;
    what.context = live.context;
    what.device = live.device;
    live_.allocated(time, static_cast<uint32_t>(live.thread), what);
  } else if (event == Event::kFreed) {
    told::Freed what;
    memcpy(static_cast<void*>(&what), words, sizeof what);
    live_.freed(time, what);
  } else if (event == Event::kContextEnded) {
    told::ContextEnded what;
    memcpy(static_cast<void*>(&what), words, sizeof what);
    live_.context_ended(time, what.context);
  }
}

void Gatherer::gather_ring(Ring& ring, int* kept) {
  const auto thread = static_cast<uint32_t>(ring.thread.load(std::memory_order_acquire));
  bool is_open = false;
  bool is_full = true;
  for (size_t turns = 0; is_full && turns <= Ring::kWords * sizeof(uint64_t) / kBlockContent; ++turns) {
    is_full = false;
    ring.gather([&](Event event, uint64_t time, const uint64_t* words) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
      if (!is_open) open_block(BlockKind::kEvents, time, thread, kept);
      is_open = true;
      if (!encoder_.add(event, time, words)) {
        is_full = true;
        return false;
      }
      follow(event, time, thread, words);
      return true;
    });
    if (is_full) {
      close_block(0);
      is_open = false;
    }
  }
  if (const uint64_t lost = ring.take_lost(); lost != 0) {
    const told::Lost what{lost};
    const uint64_t now = now_ns();
    if (!is_open) open_block(BlockKind::kEvents, now, thread, kept);
    is_open = true;
    encoder_.add(Event::kLost, now, reinterpret_cast<const uint64_t*>(&what));
  }
  if (is_open) close_block(0);
}

void Gatherer::write_lost(uint64_t lost, int* kept) {
  const told::Lost what{lost};
  const uint64_t now = now_ns();
  open_block(BlockKind::kEvents, now, 0, kept);
  encoder_.add(Event::kLost, now, reinterpret_cast<const uint64_t*>(&what));
  close_block(0);
}

void Gatherer::gather_all(int* kept) {
  round_before_ = round_;
  round_ = now_ns();
  if (is_written()) gathering_due.store(round_ + kMostUngathered, std::memory_order_relaxed);
  for (Ring* ring = rings.load(std::memory_order_acquire); ring != nullptr; ring = ring->next) ring->mark();
  if (is_written()) write_stacks(kept);
  for (Ring* ring = rings.load(std::memory_order_acquire); ring != nullptr; ring = ring->next) {
    if (!ring->is_empty()) gather_ring(*ring, kept);
  }
  if (const uint64_t lost = take_lost_without_ring(); lost != 0) write_lost(lost, kept);
  live_.forget_frees(round_before_);
  if (settings_.has_output && since_live_set_ >= std::max(settings_.live_set_every, 8 * live_set_bytes_))
    write_live_set(kept);
  if (indexed_ > kIndexed / 2) write_index(kept);
  flush(kept);
}

void Gatherer::write_live_set(int* kept) {
  since_live_set_ = 0;
  // (A reader may begin with it.)
  if (!live_.is_complete()) return;
  uint16_t flags = kFirstPart;
  open_block(BlockKind::kLive, round_, 0, kept);
  live_.for_each([&](const LiveSet::Item& item) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
    const told::Live what{
        item.address, item.asked,   item.more,   item.stack,     item.call, static_cast<Kind>(item.kind),
        item.thread,  item.context, item.device, sample_period()};
    if (encoder_.add(Event::kLive, item.time, reinterpret_cast<const uint64_t*>(&what))) return;
    close_block(flags);
    flags = 0;
    open_block(BlockKind::kLive, round_, 0, kept);
    encoder_.add(Event::kLive, item.time, reinterpret_cast<const uint64_t*>(&what));
  });
  // What was freed lately, too: its allocation may be gathered only now.
  live_.for_each_gone([&](const LiveSet::Item& item) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
    told::Freed what{};
    what.address = item.address;
    what.kind = static_cast<Kind>(item.kind);
    if (encoder_.add(Event::kFreed, item.time, reinterpret_cast<const uint64_t*>(&what))) return;
    close_block(flags);
    flags = 0;
    open_block(BlockKind::kLive, round_, 0, kept);
    encoder_.add(Event::kFreed, item.time, reinterpret_cast<const uint64_t*>(&what));
  });
  close_block(flags | kLastPart);
  live_set_bytes_ = since_live_set_;
  since_live_set_ = 0;
  if (settings_.kept_bytes == 0) write_index(kept);
}

// ---- What others ask for.

bool Gatherer::gather(int* kept) {
  if (!is_on()) return true;
  if (!enter()) return false;
  if (is_on()) gather_all(kept);
  leave();
  return true;
}

bool Gatherer::gather_if_nobody_does() {
  if (!is_on()) return true;
  if (!enter_at_once()) return false;
  if (is_on()) gather_all(nullptr);
  leave();
  return true;
}

void Gatherer::end(Ending why) {
  if (!is_on()) return;
  gather_all(nullptr);
  if (is_on() && is_written()) {
    write_index(nullptr);
    flush(nullptr);
    if (is_on() && is_written()) write_ended(why, nullptr);
  }
  if (why == Ending::kProgram) return detail::on.store(false, std::memory_order_release);
  leave_file();
}

void Gatherer::leave_file() {
  settings_.has_output = false;
  settings_.kept_bytes = 0;
  gathering_due.store(~uint64_t{0}, std::memory_order_relaxed);
  if (!settings_.stays) detail::on.store(false, std::memory_order_release);
}

bool Gatherer::end() {
  if (!enter()) return false;
  end(Ending::kAsked);
  leave();
  return true;
}

void Gatherer::finish() {
  constexpr int kMostTries = 200;
  for (int i = 0; i < kMostTries && is_on() && !is_here(); ++i) {
    if (!enter()) continue;
    end(Ending::kProgram);
    leave();
  }
}

bool Gatherer::visit_kept(Put put, void* argument) {
  if (!is_kept() || !enter()) return false;
  if (is_on()) gather_all(nullptr);
  // The head is not in the ring: it would be the first to make room.
  const uint64_t sequence = sequence_;
  used_ = 0;
  sequence_ = 0;
  const uint64_t since_live_set = since_live_set_;
  sink_ = put;
  sink_argument_ = argument;
  make_about();
  forget_told_stacks();
  write_stacks(nullptr);
  flush(nullptr);
  sink_ = nullptr;
  sequence_ = sequence;
  since_live_set_ = since_live_set;
  kept_.for_each([&](const uint8_t* block, size_t bytes) { put(block, bytes, argument); });
  leave();
  return true;
}

bool Gatherer::find_block(uint64_t address, LiveSet::Item* out) {
  constexpr int kMostTries = 100;
  for (int i = 0; i < kMostTries && is_on() && !is_here(); ++i) {
    if (!enter()) continue;
    gather_all(nullptr);
    const bool is_found = live_.find_around(address, out);
    leave();
    return is_found;
  }
  return false;
}

bool Gatherer::visit_live(See see, void* argument) {
  if (!is_on() || !enter()) return false;
  gather_all(nullptr);
  const bool is_known = live_.is_complete();
  if (is_known) live_.for_each([&](const LiveSet::Item& item) { see(item, argument); });
  leave();
  return is_known;
}

}  // namespace cupool::trace
