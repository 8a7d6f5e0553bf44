// See segments_of_driver.hpp.
#include "pool/segments_of_driver.hpp"

#include "order/idle_moment.hpp"
#include "pool/page_map.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

using driver::kOutOfMemory;
using driver::kSuccess;

Range* DriverSegments::add(uint64_t bytes, uint64_t taken, SegmentRequest* request) {
  upstream::Upstream& upstream = records_.tenancy.upstream();
  Address start = 0;
  request->status = upstream.allocate(bytes, &start);
  if (request->status != kSuccess) return nullptr;
  records_.growth.note_added();
  records_.growth.note_need(taken);
  if ((start & (kPageBytes - 1)) == 0 && SegmentRecords::enter_pages(start, bytes)) {
    const auto from = request->is_slab ? Ranges::From::kDriverForSmall : Ranges::From::kDriver;
    if (Range* range = records_.ranges.add(start, bytes, taken, from)) return range;
    page_map.remove(start, bytes);
  }
  // Memory that the page map cannot hold cannot be pooled.
  upstream.give_up(start, bytes);
  request->status = kOutOfMemory;
  return nullptr;
}

bool DriverSegments::give_back(const Segment& segment) {
  Tenancy& tenancy = records_.tenancy;
  return tenancy.upstream().release(tenancy.order(), segment.start, segment.bytes);
}

// Without a wait, for a segment whose work is done.
uint64_t DriverSegments::hand_back_done(Segment* segment) {
  Tenancy& tenancy = records_.tenancy;
  const uint64_t bytes = segment->bytes;
  if (!tenancy.upstream().release_done(tenancy.order(), segment->start, bytes)) {
    records_.put_back(segment);
    return 0;
  }
  records_.growth.note_gone();
  records_.ranges.forget(segment);
  return bytes;
}

uint64_t DriverSegments::release_free(uint64_t keep) {
  Ranges& ranges = records_.ranges;
  if (!ranges.has_driver_segments()) return 0;
  uint64_t released = 0;
  const ReleaseScope release(records_.tenancy);
  while (release.may_begin() && ranges.bytes().free() > keep) {
    Segment* segment = ranges.detach();
    if (segment == nullptr) break;
    const uint64_t bytes = records_.hand_back(segment, *this);
    if (bytes == 0) break;
    released += bytes;
  }
  return released;
}

uint64_t DriverSegments::release_done() {
  order::Timeline& order = records_.tenancy.order();
  uint64_t released = 0;
  const ReleaseScope release(records_.tenancy);
  while (release.may_begin() && order.spare_stream() != nullptr) {
    Segment* const segment = records_.ranges.detach_done(order);
    const uint64_t bytes = segment == nullptr ? 0 : hand_back_done(segment);
    if (bytes == 0) break;
    released += bytes;
  }
  return released;
}

// One segment at a time, while nothing is pending: submissions wait meanwhile.
uint64_t DriverSegments::release_idle(const allocator::Idle& which, uint64_t now_ms) {
  order::Timeline& order = records_.tenancy.order();
  const bool may_go =
      records_.ranges.has_driver_segments() && order.is_idle() && (!which.only_quiet || order.was_quiet());
  if (!may_go) return 0;
  caches_.empty_all();
  uint64_t released = 0;
  while (released < which.enough && which.goes_on()) {
    const order::IdleMoment moment(order);
    if (!moment.has_come()) break;
    const ReleaseScope release(records_.tenancy);
    if (!release.may_begin()) break;
    Segment* const segment = records_.ranges.detach_idle(now_ms, which.for_ms, order);
    if (segment == nullptr) break;
    const uint64_t bytes = records_.hand_back(segment, *this);
    if (bytes == 0) break;
    records_.tenancy.stats().count(stats::DeviceCounter::decays);
    released += bytes;
  }
  return released;
}

}  // namespace cupool::pool
