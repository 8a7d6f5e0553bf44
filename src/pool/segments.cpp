// See segments.hpp. What both sources share is in the second half.
#include "pool/segments.hpp"

#include <sched.h>

#include <algorithm>

#include "context/context_ending.hpp"
#include "pool/page_map.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

using driver::kOutOfMemory;
using driver::kSuccess;

Range* Segments::add(uint64_t bytes, uint64_t taken, SegmentRequest* request) {
  // What stream-ordered frees will need, while the driver still makes it.
  tenancy_.order().keep_events();
  frees_.keep_events();
  if (mapped_.serves()) {
    Range* const range = mapped_.add(bytes, taken, request);
    // Unless it has stopped to serve.
    if (range != nullptr || mapped_.serves()) return range;
  }
  return driver_.add(bytes, taken, request);
}

// Asked for only if anything could go: a stream for that is made with the first.
bool Segments::has_stream(From from) {
  order::Timeline& order = tenancy_.order();
  return from == From::kInside ? order.make_spare_stream() : order.ask_for_spare_stream();
}

bool Segments::can_go_when_done(From from) {
  return records_.ranges.has_mapped_segments() || (releasable_bytes() != 0 && has_stream(from));
}

void Segments::look_what_is_done() {
  if (records_.ranges.has_mapped_segments()) tenancy_.order().advance();
}

uint64_t Segments::release_free(uint64_t keep) {
  const uint64_t released = mapped_.release_free(keep);
  return released + driver_.release_free(keep);
}

uint64_t Segments::release_done(From from) {
  const uint64_t released = mapped_.release_done();
  const bool may_go = records_.ranges.has_driver_segments() && releasable_bytes() != 0 && has_stream(from);
  return may_go ? released + driver_.release_done() : released;
}

uint64_t Segments::release_idle(const allocator::Idle& which, uint64_t now_ms) {
  const uint64_t released = mapped_.release_idle(which, now_ms);
  allocator::Idle more = which;
  more.enough -= std::min(more.enough, released);
  return released + driver_.release_idle(more, now_ms);
}

uint64_t Segments::release_tainted(bool may_wait) {
  if (tainted_segments_.load(std::memory_order_relaxed) == 0 || tenancy_.order().is_capturing()) return 0;
  uint64_t released = 0;
  const ReleaseScope release(tenancy_);
  if (!release.may_begin()) return 0;
  while (Segment* segment = records_.ranges.detach_tainted(tenancy_.order(), may_wait)) {
    tainted_segments_.fetch_sub(1, std::memory_order_relaxed);
    // If the driver refuses, the segment leaks: another process or device may still reach it, so it is never
    // reused.
    if (records_.give_back(*segment, source_of(*segment))) {
      released += segment->bytes;
    } else {
      records_.add_lost(segment->bytes);
    }
    records_.ranges.forget(segment);
  }
  return released;
}

// Where threads keep nothing, what is handed out is held: no block need be looked at. So it is whenever
// memory is short, and then this is asked again and again.
uint64_t Segments::releasable_bytes() {
  uint64_t bytes = 0;
  if (tainted_segments_.load(std::memory_order_relaxed) == 0 && caches_.are_empty() &&
      records_.ranges.find_idle_bytes(mapped_.space(), &bytes))
    return bytes;
  Guard hold(records_.ranges.lock());
  for (const Segment* segment = records_.ranges.first_segment(); segment != nullptr; segment = segment->next)
    bytes += source_of(*segment).releasable_locked(*segment);
  return bytes;
}

// Mapped memory need not go back: a free range at the end of a segment grows, so that the part of it that
// lies in a chunk with live blocks counts, too.
uint64_t Segments::most_releasable() {
  const uint64_t bytes = releasable_bytes();
  return records_.ranges.has_mapped_segments() ? bytes + mapped_.most_of_tail() : bytes;
}

bool Segments::taint(Address address) {
  if (!records_.ranges.taint(address, blocks_.slabs(), mapped_.space())) return false;
  tainted_segments_.fetch_add(1, std::memory_order_relaxed);
  growth_.note_tainted();
  return true;
}

// Asked when a segment is refused, which alone says little: the request may have been huge.
bool Segments::is_nearly_full() {
  upstream::Upstream& upstream = tenancy_.upstream();
  const uint64_t share = std::min(tenancy_.device_bytes(), tenancy_.settings().limit) / 16;
  size_t free = 0;
  size_t total = 0;
  return upstream.excess(share) != 0 || (tenancy_.driver().memory(&free, &total) == kSuccess && free < share);
}

void Segments::note_answer(driver::Status status) {
  const bool is_refused = status == kOutOfMemory;
  if (is_refused) growth_.note_refused();
  const bool is_full = is_refused && is_nearly_full();
  growth_.note_fullness(is_full);
  is_short_.store(is_full, std::memory_order_relaxed);
}

void Segments::drop_all() {
  tenancy_.upstream().forget(records_.ranges.bytes().reserved() + records_.take_lost());
  records_.ranges.drop_all(blocks_.slabs());
  tainted_segments_.store(0, std::memory_order_relaxed);
}

// ---- What both sources share.

// If another pool still has these pages, its context has ended and they will leave the map in a moment.
bool SegmentRecords::enter_pages(Address start, uint64_t bytes) {
  while (!page_map.enter(start, bytes)) {
    // Read before the last try, so that pages that leave in between are not missed.
    const bool may_leave = context::ContextEnding::is_under_way();
    if (page_map.enter(start, bytes)) break;
    if (!may_leave) return false;
    sched_yield();
  }
  return true;
}

uint64_t SegmentRecords::unheld_bytes(const Segment& segment) {
  const Range* range = segment.lowest();
  while (range != nullptr && !is_held(*range)) range = range->after;
  return range == nullptr ? segment.bytes : 0;
}

bool SegmentRecords::give_back(const Segment& segment, SegmentSource& to) {
  if (!to.give_back(segment)) return false;
  growth.note_gone();
  return true;
}

uint64_t SegmentRecords::hand_back(Segment* segment, SegmentSource& to) {
  const uint64_t bytes = segment->bytes;
  if (!give_back(*segment, to)) {
    put_back(segment);
    return 0;
  }
  ranges.forget(segment);
  return bytes;
}

// It serves on, with the stamp it had. Without host memory for its records it is lost.
void SegmentRecords::put_back(Segment* segment) {
  const bool entered = page_map.enter(segment->start, segment->bytes);
  const auto of_driver = segment->small ? Ranges::From::kDriverForSmall : Ranges::From::kDriver;
  const auto from = segment->mapped ? Ranges::From::kMapped : of_driver;
  if (!entered || ranges.add(segment->start, segment->bytes, 0, from, segment->lowest()->stamp) == nullptr) {
    if (entered) page_map.remove(segment->start, segment->bytes);
    add_lost(segment->bytes);
  }
  ranges.forget(segment);
}

}  // namespace cupool::pool
