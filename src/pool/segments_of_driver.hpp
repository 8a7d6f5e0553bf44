// Segments that are allocations of the driver. One goes back whole, by a real cuMemFree, which waits for all
// work of the context: so in a free, or while nothing is pending. After the driver has refused memory, a
// segment whose own work is done goes without a wait. No pool lock is held across either.
#pragma once

#include "pool/segment_source.hpp"
#include "pool/thread_caches.hpp"

namespace cupool::pool {

class DriverSegments final : public SegmentSource {
 public:
  DriverSegments(SegmentRecords& records, ThreadCaches& caches) : records_(records), caches_(caches) {}

  bool serves() const override { return true; }
  uint64_t bytes_for(uint64_t need, bool is_small) const override {
    return growth::segment_bytes(records_.tenancy.settings(), records_.growth.figures(), need, is_small);
  }
  Range* add(uint64_t bytes, uint64_t taken, SegmentRequest* request) override;
  bool give_back(const Segment& segment) override;
  uint64_t releasable_locked(const Segment& segment) override {
    return SegmentRecords::unheld_bytes(segment);
  }
  uint64_t release_free(uint64_t keep) override;
  uint64_t release_done() override;
  uint64_t release_idle(const allocator::Idle& which, uint64_t now_ms) override;

 private:
  uint64_t hand_back_done(Segment* segment);

  SegmentRecords& records_;
  ThreadCaches& caches_;
};

}  // namespace cupool::pool
