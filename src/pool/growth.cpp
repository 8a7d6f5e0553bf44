// See growth.hpp. Each constant stands with the one rule that it belongs to.
#include "pool/growth.hpp"

#include <cmath>

#include "base/bytes.hpp"
#include "pool/range.hpp"

namespace cupool::pool::growth {

// Above the split limit the rest of a segment would serve none of them.
uint64_t largest_split(const Settings& settings, uint64_t need) {
  return need > settings.split_max ? ~uint64_t{0} : settings.split_max & ~(kPageBytes - 1);
}

// Exact for a large block, else growing slowly with what is reserved: the first ones are small, so that a
// small program stays small, and none has room for more than a few such blocks, because the next may be of
// another size, unless it is little beside what there is. Small blocks get a share of what small ones have. A
// program that exports block after block loses a segment with each: what is lost does not make the next one
// larger, and the segment after a loss is as small as can be. Once half of the device is taken, every block
// beyond a page gets a segment of its own: pieces between live blocks would be missed at its end.
uint64_t segment_bytes(const Settings& settings, const Figures& figures, uint64_t need, bool is_small) {
  constexpr uint64_t kUsual = 20 << 20;
  constexpr uint64_t kShareOfSmall = 8;
  constexpr uint64_t kFewBlocks = 3;
  constexpr uint64_t kMostBlocks = 6;
  constexpr uint64_t kShareOfAll = 64;
  constexpr uint64_t kFirstGrowth = 3;
  constexpr uint64_t kRow = 2;
  const uint64_t exact = round_up(need, kPageBytes);
  if (need >= settings.segment_exact || figures.is_newly_tainted) return exact;
  if (!is_small && (figures.reserved > figures.most / 2 || figures.full_at != 0)) return exact;
  const double root = std::sqrt(static_cast<double>(figures.usable) * (4.5 * (1 << 20)));
  const uint64_t first = kFirstGrowth * figures.usable;
  const uint64_t few = std::max(kMostBlocks * exact, figures.usable / kShareOfAll);
  uint64_t wanted = std::min({std::max(kUsual, static_cast<uint64_t>(root)), first, few});
  if (is_small) wanted = figures.for_small / kShareOfSmall;
  wanted = std::max(wanted, settings.segment_min);
  wanted = std::min({wanted, settings.segment_max, largest_split(settings, need)}) & ~(kPageBytes - 1);
  // A segment for several large blocks holds a whole number of them, and so does every segment when blocks of
  // one size come in a row, and the first ones: the rest would serve none. Where streams take turns, existing
  // blocks may soon be free again, so make room for a few only.
  const bool is_for_several = need >= kLarge && wanted >= kFewBlocks * exact;
  if (is_for_several && figures.has_turns) wanted = kFewBlocks * exact;
  const bool is_first = figures.usable < 2 * kUsual;
  if (is_for_several || is_first || (figures.equal_segments >= kRow && figures.last_need == exact))
    wanted -= wanted % exact;
  return std::max(exact, wanted);
}

bool is_nearly_full(const Figures& figures, uint64_t bytes) {
  const uint64_t most = figures.full_at == 0 ? figures.most : std::min(figures.full_at, figures.most);
  return figures.reserved + bytes > most / 8 * 7;
}

// What the program holds, with the pieces between it, leaves little of the device; once the driver has
// refused memory, what lies free besides counts as well.
bool is_crowded(const Figures& figures, uint64_t bytes) {
  constexpr uint64_t kSixteenths = 13;
  if (figures.full_at != 0) return is_nearly_full(figures, bytes);
  const uint64_t much = figures.most / 16 * kSixteenths;
  return figures.reserved + bytes > much && figures.apart + figures.in_holes > much;
}

// More than a little of the device, and of what the driver would have left of it.
bool has_many_holes(const Figures& figures) {
  constexpr uint64_t kPartOfAll = 64;
  constexpr uint64_t kPart = 16;
  const uint64_t room = figures.most - std::min(figures.most, figures.apart);
  return figures.full_at != 0 || figures.in_holes > std::max(figures.most / kPartOfAll, room / kPart);
}

// Where no free range fits closely, to cut one leaves a piece that may serve nobody. If hardly anything is in
// use, the program has come to another phase: what is wholly free goes back, as under the driver, and the
// block gets what it needs.
bool should_replace(const Figures& figures, uint64_t bytes, uint64_t best) {
  constexpr uint64_t kClose = 16;
  constexpr uint64_t kLittle = 16;
  if (best == 0 || best - bytes <= bytes / kClose) return false;
  return figures.taken <= figures.reserved / kLittle;
}

// Within a small share of the most that was handed out at once: no more than so much is to be reserved for
// nothing.
uint64_t spare_bytes(const Settings& settings, const Figures& figures, uint64_t need) {
  constexpr uint64_t kPercent = 6;
  if (figures.is_cache_limited || is_nearly_full(figures, need)) return 0;
  const uint64_t most = figures.peak_taken + figures.peak_taken / 100 * kPercent;
  const uint64_t room = (most - std::min(most, figures.reserved)) & ~(kPageBytes - 1);
  if (room < round_up(need, kPageBytes)) return 0;
  return std::min(room, segment_bytes(settings, figures, need, false));
}

// A block of a page and more gets what it needs; smaller ones share a small part of what is reserved, unless
// the last one was lost to a taint.
uint64_t run_bytes(const Settings& settings, const Figures& figures, uint64_t need) {
  constexpr uint64_t kShare = 256;
  const uint64_t exact = round_up(need, kPageBytes);
  if (need >= kPageBytes || figures.is_newly_tainted) return exact;
  const uint64_t shared = std::clamp(figures.usable / kShare & ~(kPageBytes - 1), kPageBytes, settings.chunk);
  return std::max(exact, std::min(shared, largest_split(settings, need)));
}

// A chunk goes back only when all of it is free, so it must not be larger because much else is reserved: then
// blocks of a few pages would share one, and each of them hold all of it. Only a large block has larger ones,
// for each costs about as much as twenty launches of kernels cost the host; they come and go together as long
// as it is not cut.
uint64_t most_of_chunk(const Settings& settings, uint64_t run) {
  constexpr uint64_t kFewChunks = 16;
  return std::clamp(round_up(run / kFewChunks, kPageBytes), kPageBytes, settings.chunk);
}

// Both blocks would hold the page, so that less lies free in whole pages after one of them is gone than the
// driver's own allocations leave. A program that has little of the device need not mind, and needs less so.
bool may_share_page(const Figures& figures, uint64_t need) {
  constexpr uint64_t kLittle = 16;
  return need < kPageBytes || figures.reserved <= figures.most / kLittle;
}

// Where streams overlap, more memory may be taken while blocks with unfinished work lie idle, so that streams
// need not wait for each other. Streams that take turns get about what a cache per stream would take: for
// small blocks a segment of 2 MiB each, for larger ones a block each and, unless they are very large, one in
// transit. With more streams, which run side by side far ahead of the device, small blocks get all that the
// user allows, but no more than a share of the most that the program has ever had.
bool may_spread(const Settings& settings, const Figures& figures, uint64_t bytes) {
  constexpr uint64_t kSmallShare = 2 << 20;
  constexpr uint64_t kShare = 20 << 20;
  constexpr uint64_t kPart = 3;
  constexpr uint64_t kShareOfPeak = 8;
  constexpr size_t kTurns = 2;  // up to this many lanes take turns; more run side by side
  const size_t lanes = figures.lanes_in_turns;
  uint64_t most = settings.many_budget;
  if (is_small(bytes)) {
    const uint64_t of_peak = lanes <= kTurns ? 0 : figures.peak_taken / kShareOfPeak;
    most = std::min(most, std::max(of_peak, kSmallShare * lanes));
  } else {
    const uint64_t in_transit = bytes < kVeryLarge ? 1 : 0;
    const uint64_t blocks = lanes == 0 ? 0 : std::max(bytes, kShare) * (lanes + in_transit);
    most = std::min({most, blocks, std::max(figures.needed() / kPart, kShare * lanes)});
  }
  return figures.spread + bytes <= most;
}

// Within a small share of the most that was handed out at once, or within what was needed before memory went
// back. Then streams need not wait for each other's memory.
bool may_exceed(const Figures& figures, uint64_t bytes) {
  constexpr uint64_t kShare = 32;
  const uint64_t peak = figures.peak_taken;
  return figures.reserved + bytes <= peak + peak / kShare || figures.needed() + bytes <= figures.needed_once;
}

// A program that repeats itself would move the same memory again and again. If moves go on while the most
// that was handed out at once stays the same, the largest block they were made for gets new memory instead,
// if it comes again soon and may have it; else any.
bool should_grow(const Figures& figures, uint64_t bytes) {
  if (figures.moved <= figures.few_moves || !may_grow(figures, bytes)) return false;
  return bytes >= figures.largest_moved || figures.moved > 2 * figures.few_moves ||
         !may_grow(figures, figures.largest_moved);
}

// Within a small share of that most. Where streams take turns, a larger one: they have it with the driver's
// segments, too, and a very large block counts as what is taken so that they need not wait.
bool may_grow(const Figures& figures, uint64_t bytes) {
  constexpr uint64_t kShare = 24;
  constexpr uint64_t kShareOfTurns = 14;
  constexpr uint64_t kShareOfVeryLarge = 6;
  // It would go back soon.
  if (figures.is_cache_limited) return false;
  const uint64_t peak = figures.peak_taken;
  const bool are_turns = figures.lanes_in_turns > 1;
  if (are_turns && bytes >= kVeryLarge) return figures.spread + bytes <= peak / kShareOfVeryLarge;
  return figures.reserved + bytes <= peak + peak / (are_turns ? kShareOfTurns : kShare);
}

// While the pool regrows after a pause, memory given to streams that take turns counts as needed, up to what
// they had before the pause: if it is in use when nothing fits, it would have been taken anyway.
uint64_t maybe_needed(const Figures& figures) {
  return figures.reserved >= figures.needed_once ? 0 : std::min(figures.spread, figures.spread_once);
}

// A quarter of the pool for all threads together, unless the user limits what is cached.
uint64_t thread_share(const Figures& figures, unsigned threads) {
  return figures.is_cache_limited ? 0 : figures.reserved / 4 / std::max(1u, threads);
}

// A seal costs more than on one stream and holds up all submitting threads, and memory has to wait for its
// work to complete anyway.
uint64_t most_unsealed(const Settings& settings, uint64_t reserved, const Streams& streams, uint64_t bytes) {
  constexpr uint64_t kFewest = 512 << 10;
  constexpr uint64_t kShare = 256;
  constexpr uint64_t kShareOfBudget = 32;
  constexpr uint64_t kFewOfThreads = 4 << 20;
  const uint64_t share = std::max(kFewest, reserved / kShare);
  if (bytes > SizeClasses::kLargestKept) return share;
  if (streams.lanes_in_turns > 2) return std::max(share, settings.many_budget / kShareOfBudget);
  return streams.have_several_threads ? std::max(share, kFewOfThreads) : share;
}

}  // namespace cupool::pool::growth
