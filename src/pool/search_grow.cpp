// The end of a search: nothing that lies free will do, so the pool takes more memory. First it releases what
// is free and does not fit; when the driver refuses, it waits for ever more work and asks again:
// the first rung of the ladder that memory/shortage.cpp describes.
#include <algorithm>

#include "order/idle_moment.hpp"
#include "pool/pool.hpp"
#include "pool/search.hpp"
#include "stats/device.hpp"
#include "trace/dealings.hpp"
#include "upstream/retry.hpp"

namespace cupool::pool {

using allocator::Short;
using driver::kOutOfMemory;
using driver::kSuccess;

// Threads that come together share what one of them would take: each segment has room for more than the block
// that it is taken for, and the sum of them none of it.
Range* Search::add_segment(uint64_t bytes) {
  how_ = How::kMiss;
  request_.is_slab = wants_slab_;
  const SearchMemory::Growing growing(pool_.search_memory());
  const uint64_t exact = round_up(bytes_, kPageBytes);
  const uint64_t share = bytes / (growing.others() + 1) & ~(kPageBytes - 1);
  return pool_.segments().add(std::max(std::min(exact, bytes), share), bytes_, &request_);
}

// Releases free but unsuitable segments before growing, to keep the footprint low: those whose work is done.
// If nothing is pending beyond what this thread's last free would have waited for, that is waited for first.
// But not for long, and if once in vain then never again: since that free the thread may have taken a lock
// that the work needs.
uint64_t Search::release_for_growth() {
  constexpr uint64_t kMostNs = 250'000'000;
  if (!ranges().has_driver_segments() || ranges().bytes().free() == 0 || order().is_capturing()) return 0;
  // Not behind a closed gate: see OrderedFrees::keep_events().
  order().keep_events();
  SearchMemory& memory = pool_.search_memory();
  if (!order().is_idle() && memory.waits_to_grow() && is_all_before_last_free())
    memory.note_wait_to_grow(order().wait_for_seals(kMostNs));
  if (order().is_idle()) {
    const order::IdleMoment moment(order());
    if (moment.has_come()) return pool_.release_free_segments(0);
  }
  order().advance();
  return pool_.release_done();
}

// A free that needed no seal has not made its thread known. If it was the only thread's, and nothing was
// submitted since, a seal now covers the same work; another thread may be in its first submission, so the
// gate is closed. Where submissions may go unseen, it is never known.
bool Search::is_all_before_last_free() {
  if (order().reuse() != order::Reuse::kLean || order().has_value_waits() || !order().has_context_events())
    return false;
  if (!order().is_only_thread()) return order().is_all_before_last_free();
  const order::SubmissionGate::Closing gate;
  if (!gate.is_closed() || !order().is_only_thread() || !cache_.frees().is_last_act()) return false;
  order().seal_for_completion();
  return true;
}

Range* Search::grow() {
  Segments& segments = pool_.segments();
  const uint64_t unsure = growth::maybe_needed(pool_.growth().figures());
  const uint64_t needed = unsure == 0 ? 0 : unsure - std::min(unsure, segments.releasable_bytes());
  const uint64_t wanted = segments.bytes_for(bytes_, is_for_small());
  Range* range = add_segment(wanted);
  segments.note_answer(request_.status);
  if (range != nullptr && needed != 0) pool_.growth().note_needed(needed);
  if (request_.status != kOutOfMemory) return range;
  pool_.tenancy().stats().count(stats::DeviceCounter::out_of_memory_retries);
  const trace::Because because(trace::Why::kShortage);
  const uint64_t exact = round_up(bytes_, kPageBytes);
  range = add_smaller_segment(wanted, exact);
  if (range != nullptr) return range;
  is_anywhere_ = true;
  range = take_range(How::kRange, Ranges::Cut::kAlways);
  if (range == nullptr) range = take_smaller_slab(How::kRange);
  if (range != nullptr || when_short_ == Short::kLeave || fetch_wanted()) return range;
  range = take_after_frees();
  if (range != nullptr || has_small_) return range;
  uint64_t gives = ~uint64_t{0};
  uint64_t added = 0;
  bool may_help = false;
  const auto wait_for_work = [&] {
    if (order().is_capturing() || request_.status != kOutOfMemory) return false;
    pool_.caches().empty_all();
    // Give up only if no other thread gave or took memory meanwhile: a block in transit may have been out of
    // reach.
    if (gives == ranges().gives() - request_.returned && added == pool_.growth().added()) return false;
    may_help = may_help_to_wait();
    if (may_help) order().wait_for_all();
    pool_.caches().empty_all();
    gives = ranges().gives() - request_.returned;
    added = pool_.growth().added();
    return true;
  };
  upstream::ask_again(wait_for_work, [&] {
    range = take_range(How::kAfterWait);
    if (range == nullptr) range = take_smaller_slab(How::kAfterWait);
    if (range != nullptr || fetch_wanted()) return kSuccess;
    if (may_help) {
      pool_.release_done();
      segments.release_tainted(true);
      pool_.release_free_segments(0);
    }
    const Tenancy& tenancy = pool_.tenancy();
    tenancy.in_flight().wait_for_releases_of(tenancy.context());
    range = add_segment(exact);
    return request_.status;
  });
  return range;
}

// The driver has refused a segment of `bytes`. Asks for ever smaller ones, down to what the block needs, each
// a whole number of such blocks: what it still has is all put to use, in a few calls.
Range* Search::add_smaller_segment(uint64_t bytes, uint64_t exact) {
  for (uint64_t blocks = bytes / exact / 2; blocks > 1 && request_.status == kOutOfMemory; blocks /= 2) {
    if (Range* const range = add_segment(blocks * exact)) return range;
  }
  return add_segment(exact);
}

// What the search can do with: a slab of one block, if it is for one.
uint64_t Search::least_bytes() const {
  return wants_slab_ ? round_up(pool_.sizes().bytes(size_class_), kGranule) : bytes_;
}

// There is no room for a slab as large as it is to be: one of fewer blocks, in what lies free.
Range* Search::take_smaller_slab(How how) {
  if (!wants_slab_) return nullptr;
  const uint64_t whole = bytes_;
  const uint64_t least = least_bytes();
  for (bytes_ = whole / 2; bytes_ > least; bytes_ /= 2) {
    if (Range* const range = take_range(how, Ranges::Cut::kAlways)) return range;
  }
  bytes_ = least;
  Range* const range = take_range(how, Ranges::Cut::kAlways);
  if (range == nullptr) bytes_ = whole;
  return range;
}

// What frees would have waited for is waited for first. Where that is enough, nothing newer is: a kernel that
// was launched since then may wait for this thread.
Range* Search::take_after_frees() {
  if (order().is_capturing() || request_.status != kOutOfMemory) return nullptr;
  pool_.caches().empty_all();
  const bool may_help = may_help_to_wait();
  if (may_help) order().wait_for_frees();
  Range* range = take_range(How::kAfterWait);
  if (range == nullptr) range = take_smaller_slab(How::kAfterWait);
  if (range != nullptr || fetch_wanted()) return range;
  // (Memory that can move does that instead.)
  const bool has_room = pool_.segments().can_move() || (may_help && pool_.release_done() != 0);
  return has_room ? add_segment(round_up(bytes_, kPageBytes)) : nullptr;
}

// Whether so many bytes may be had by waiting for all work and giving all free memory back. The driver
// refuses at once what it does not have, and so does the pool.
bool Search::may_help_to_wait() {
  Segments& segments = pool_.segments();
  upstream::Upstream& upstream = pool_.tenancy().upstream();
  if (wants_slab_ && pool_.blocks().slabs().have_room(size_class_)) return true;
  const bool is_time_missing = segments.has_vacated() || ranges().has_unfinished(order().done());
  if (is_time_missing && ranges().has_run(least_bytes())) return true;
  // Memory that can go without a wait has been tried.
  if (!is_time_missing && !ranges().has_driver_segments()) return false;
  const uint64_t exact = round_up(bytes_, kPageBytes);
  const uint64_t most = segments.most_releasable();
  if (most == 0 || !pool_.may_take(bytes_)) return false;
  // Asked first: what is refused meanwhile is booked no more.
  if (!upstream::Limit::is_asking(upstream.device()) && upstream.excess(bytes_) > most) return false;
  return most >= exact || upstream.source().might_give(upstream.device(), exact - most);
}

}  // namespace cupool::pool
