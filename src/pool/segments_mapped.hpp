// Segments of mapped memory: runs of chunks, as few bytes as the block needs, made of memory that lies free
// elsewhere before the driver is asked for more. Chunks go back wherever they lie and at any time, for
// unmapping waits for nothing and stops nothing: but only once all work on them is done (Ranges::part). No
// pool lock is held across a call of the driver.
#pragma once

#include "mapped/space.hpp"
#include "pool/segment_source.hpp"
#include "pool/thread_caches.hpp"

namespace cupool::pool {

class MappedSegments final : public SegmentSource {
 public:
  // No `mapping`: it never serves.
  MappedSegments(SegmentRecords& records, ThreadCaches& caches, driver::Mapping* mapping)
      : records_(records),
        caches_(caches),
        space_(mapping, records.tenancy.upstream(), records.tenancy.device_bytes()) {}

  bool serves() const override { return space_.serves(); }
  uint64_t bytes_for(uint64_t need, bool) const override {
    return growth::run_bytes(records_.tenancy.settings(), records_.growth.figures(), need);
  }
  // pre: no stream captures.
  Range* add(uint64_t bytes, uint64_t taken, SegmentRequest* request) override;
  bool give_back(const Segment& segment) override { return space_.unmap(segment.start, segment.bytes); }
  uint64_t releasable_locked(const Segment& segment) override;
  uint64_t release_free(uint64_t keep) override;
  uint64_t release_done() override { return release_chunks({}); }
  uint64_t release_idle(const allocator::Idle& which, uint64_t now_ms) override;

  void stop() { space_.stop(); }
  // Whether chunks are still mapped at places that they have left.
  bool has_vacated() const { return space_.has_vacated(); }
  // The most that a free range at the end of a segment has beside whole chunks.
  uint64_t most_of_tail();
  void ended(bool gone);
  mapped::Space& space() { return space_; }

 private:
  struct Moving;
  struct Run;

  Range* extend_tail(uint64_t bytes, uint64_t taken, bool may_share, SegmentRequest* request);
  void gather(uint64_t enough, const SegmentRequest& request, Moving* out);
  driver::Status map_run(SegmentRequest* request, Run* run);
  bool grow_run(SegmentRequest* request, Run* run);
  driver::Status map_run_of(Moving* moving, SegmentRequest* request, Run* run);
  void drop_run(const Run& run);
  void note_returned(SegmentRequest* request);
  uint64_t most_of_chunk(uint64_t run, bool moves_more) const;
  bool device_seems_to_have(uint64_t bytes) const;
  void unmap_vacated();
  uint64_t release_chunks(
      const Ranges::ToRelease& which, bool (*goes_on)() = [] { return true; });
  order::Timeline& order() const { return records_.tenancy.order(); }

  SegmentRecords& records_;
  ThreadCaches& caches_;
  mapped::Space space_;
};

}  // namespace cupool::pool
