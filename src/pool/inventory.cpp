// See inventory.hpp.
#include "pool/inventory.hpp"

#include <algorithm>

#include "pool/page_map.hpp"
#include "report/shortage.hpp"
#include "stats/device.hpp"
#include "trace/dealings.hpp"

namespace cupool::pool {

bool Inventory::find(Address address, BlockInfo* out) {
  return find_in_ranges(address, out) &&
         (!out->free_pending || (out->bytes = frees_.asked_at(out->start)) != 0) &&
         // Only the requested bytes count, not the slack: the driver answers likewise.
         address - out->start < out->bytes;
}

// Of a block that a stream has yet to free, all but the requested bytes.
bool Inventory::find_in_ranges(Address address, BlockInfo* out) {
  Guard hold(blocks_.ranges().lock());
  // The segment may have gone since the caller looked.
  if (page_map.pool_of(address) != pool_) return false;
  const Range* range = page_map.find_containing(address);
  if (range == nullptr) return false;
  const BlockRecord& record = record_of(*range);
  const uint32_t index = record.index_containing(address);
  const uint16_t tag = index < record.blocks ? record.tags[index].load(std::memory_order_relaxed) : 0;
  const bool is_leaving =
      tag == 0 && index < record.blocks && record.pending_frees.load(std::memory_order_relaxed) != 0;
  if (tag == 0 && !is_leaving) return false;
  const Segment& segment = *range->segment.load();
  const bool is_dedicated = &record == range && range->bytes == segment.bytes && !segment.mapped;
  *out = {record.start + uint64_t{index} * record.bytes_of_blocks(),
          is_leaving ? 0 : record.asked(tag),
          is_dedicated,
          segment.start,
          segment.number,
          tenancy_.context(),
          segment.mapped,
          is_leaving,
          record.bytes_of_blocks()};
  // The next copy to this place is to find the block without a lock.
  if (tag != 0 && &record == range && range->start < (address & ~(kPageBytes - 1)))
    page_map.remember(address, range);
  return true;
}

// (What a stream has yet to free was told as freed.)
void Inventory::visit_live(allocator::VisitLive visit, void* data) {
  Guard hold(blocks_.ranges().lock());
  BlockInfo info{};
  info.context = tenancy_.context();
  for (const Segment* segment = blocks_.ranges().first_segment(); segment != nullptr;
       segment = segment->next) {
    for (const Range* range = segment->lowest(); range != nullptr; range = range->after) {
      const BlockRecord& record = record_of(*range);
      for (uint32_t i = 0; i < record.blocks; ++i) {
        const uint16_t tag = record.tags[i].load(std::memory_order_relaxed);
        if (tag == 0) continue;
        info.start = record.start + uint64_t{i} * record.bytes_of_blocks();
        info.bytes = record.asked(tag);
        info.given = record.bytes_of_blocks();
        visit(info, data);
      }
    }
  }
}

bool Inventory::may_take(uint64_t bytes) {
  const uint64_t most = std::min(tenancy_.device_bytes(), tenancy_.settings().limit);
  const uint64_t reserved = blocks_.ranges().bytes().reserved();
  const uint64_t live = reserved - std::min(reserved, segments_.most_releasable());
  return bytes <= most && live <= most - bytes;
}

bool Inventory::note_failure(uint64_t bytes) {
  tenancy_.stats().count(stats::DeviceCounter::out_of_memory);
  trace::tell_out_of_memory(tenancy_.device(), bytes);
  // A request larger than the device is no shortage.
  if (bytes <= tenancy_.device_bytes()) return report::shortage_is_due();
  tenancy_.stats().count(stats::DeviceCounter::too_large);
  return false;
}

}  // namespace cupool::pool
