// Where a pool's segments come from and go to. There are two sources, allocations of the driver and mapped
// memory, behind one interface: new segments come from the first that serves, and each goes back to the one
// it came from. The rest of the pool need not know which. Segments and ranges change under the range lock,
// which is never held across a call of the driver.
#pragma once

#include <atomic>

#include "allocator/allocator.hpp"
#include "pool/eager_seals.hpp"
#include "pool/segment_source.hpp"
#include "pool/segments_mapped.hpp"
#include "pool/segments_of_driver.hpp"

namespace cupool::pool {

class Segments {
 public:
  // `mapping`: segments are mapped; null: they are allocations of the driver.
  Segments(Tenancy& tenancy, FreeBlocks& blocks, StreamFrees& frees, ThreadCaches& caches,
           GrowthHistory& growth, driver::Mapping* mapping)
      : tenancy_(tenancy),
        blocks_(blocks),
        frees_(frees),
        caches_(caches),
        growth_(growth),
        records_(tenancy, blocks.ranges(), growth),
        driver_(records_, caches),
        mapped_(records_, caches, mapping) {}

  // How large a segment for such a block is to be.
  uint64_t bytes_for(uint64_t need, bool is_small) const {
    return can_move() ? mapped_.bytes_for(need, is_small) : driver_.bytes_for(need, is_small);
  }
  // Adds a segment of so many bytes, of which the first `taken` are the range returned. Null: `request` says
  // why.
  Range* add(uint64_t bytes, uint64_t taken, SegmentRequest* request);
  // Whether free memory can be put where it is wanted, for new segments are mapped.
  bool can_move() const { return mapped_.serves(); }
  // New segments are allocations of the driver from now on; what is mapped stays.
  void stop_mapping() { mapped_.stop(); }
  // Whether memory that has moved is still mapped where it was, too: the device does not have it back.
  bool has_vacated() const { return mapped_.has_vacated(); }
  // Who asks for memory back: a thread in this context, or in another one, which must not wait for a launch
  // here.
  enum class From { kInside, kOutside };
  // Whether what is free can go back, or elsewhere, without the driver's free, which waits by itself: if it
  // is done.
  bool can_go_when_done(From from);
  // Before memory is asked to go back: looks what is done, where only that may go.
  void look_what_is_done();

  // Give free memory back, as far as they say; return the bytes.
  uint64_t release_free(uint64_t keep);
  uint64_t release_done(From from);
  uint64_t release_idle(const allocator::Idle& which, uint64_t now_ms);
  // `may_wait`: segments of the driver's, too, whose free waits for work.
  uint64_t release_tainted(bool may_wait);

  // How many bytes a release of everything would give back, and how many more a block could have at most.
  uint64_t releasable_bytes();
  uint64_t most_releasable();

  // The segment that contains `address`, or the chunks around its block, serve no new block. False: already
  // tainted, or not ours.
  bool taint(Address address);
  // An answer of the driver's to a request for a segment.
  void note_answer(driver::Status status);
  // Whether what was freed last may be all that the next allocation can have. (Not if much lies free.)
  bool is_short() const {
    return is_short_.load(std::memory_order_relaxed) &&
           records_.ranges.bytes().free() < records_.ranges.bytes().reserved() / 4;
  }
  // Whether a free of so many bytes seals whatever else was freed.
  bool seals_at_once(uint64_t bytes) const { return is_short() || eager_seals_.include(bytes); }
  EagerSeals& eager_seals() { return eager_seals_; }

  // The context is ending: forgets all segments; the driver frees them itself, but for what is mapped.
  void drop_all();
  // The context is gone: unmaps its memory. `gone` false: it lives on, and the program may use its blocks.
  void ended(bool gone) { mapped_.ended(gone); }
  mapped::Space& space() { return mapped_.space(); }

 private:
  SegmentSource& source_of(const Segment& segment) {
    return segment.mapped ? static_cast<SegmentSource&>(mapped_) : driver_;
  }
  bool is_nearly_full();
  // For what is done, to go back by.
  bool has_stream(From from);

  Tenancy& tenancy_;
  FreeBlocks& blocks_;
  StreamFrees& frees_;
  ThreadCaches& caches_;
  GrowthHistory& growth_;
  std::atomic<uint32_t> tainted_segments_{0};
  std::atomic<bool> is_short_{false};  // the device was nearly full when it last refused a segment
  EagerSeals eager_seals_;
  SegmentRecords records_;
  DriverSegments driver_;
  MappedSegments mapped_;
};

}  // namespace cupool::pool
