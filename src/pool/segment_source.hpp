// The interface of a source of segments, and what both sources share: how a segment enters the records and
// the page map, and what becomes of one that the driver does not take back. Never on the hot path.
#pragma once

#include <atomic>

#include "allocator/allocator.hpp"
#include "pool/growth_history.hpp"
#include "pool/ranges.hpp"
#include "pool/tenancy.hpp"

namespace cupool::pool {

// For whom a segment is wanted, and what has become of it.
struct SegmentRequest {
  order::LaneName lane = order::LaneName::kNone;  // the lane expected to use it, if several are at work
  order::Reach reach = order::Reach::kCheap;      // how far it may reach for memory that lies free elsewhere
  bool wants_new = false;                         // only memory that does not
  bool is_slab = false;                           // for a slab
  driver::Status status = driver::kSuccess;       // the driver's answer
  uint64_t returned = 0;                          // how often memory was brought back that had moved in vain
};

class SegmentSource {
 public:
  // Whether new segments come from here.
  virtual bool serves() const = 0;
  // How large a segment for such a block is to be.
  virtual uint64_t bytes_for(uint64_t need, bool is_small) const = 0;
  // Adds a segment, whose first `taken` bytes are the range returned. Null: `request` says why.
  virtual Range* add(uint64_t bytes, uint64_t taken, SegmentRequest* request) = 0;
  // Gives a detached segment back; false: the driver refused.
  virtual bool give_back(const Segment& segment) = 0;
  // How many bytes of a segment no block holds and could go back. pre: under the range lock.
  virtual uint64_t releasable_locked(const Segment& segment) = 0;

  // Give free memory back; return the bytes. Until at most `keep` free bytes are left in the pool:
  virtual uint64_t release_free(uint64_t keep) = 0;
  // All on which no work is pending, without a wait:
  virtual uint64_t release_done() = 0;
  // What nobody needs:
  virtual uint64_t release_idle(const allocator::Idle& which, uint64_t now_ms) = 0;

 protected:
  ~SegmentSource() = default;
};

// Scope of detaching segments and giving them back. Meanwhile the context does not end. A capture may begin:
// a release breaks none (driver/source.hpp).
class ReleaseScope {
 public:
  explicit ReleaseScope(const Tenancy& tenancy)
      : gate_(tenancy.order().gate()),
        call_(tenancy.in_flight(), tenancy.context(), InFlight::Kind::kRelease, tenancy.device()),
        may_capture_unseen_(tenancy.driver().may_be_capturing()) {}
  ReleaseScope(const ReleaseScope&) = delete;
  ReleaseScope& operator=(const ReleaseScope&) = delete;
  // False: the context has ended or is about to, or a stream captures.
  bool may_begin() const { return !may_capture_unseen_ && !gate_.is_capturing() && call_.is_open(); }

 private:
  const order::CaptureGate& gate_;
  const InFlight::Call call_;
  const bool may_capture_unseen_;
};

// The records that both sources write.
class SegmentRecords {
 public:
  SegmentRecords(Tenancy& of_tenancy, Ranges& of_ranges, GrowthHistory& of_growth)
      : tenancy(of_tenancy), ranges(of_ranges), growth(of_growth) {}

  // Into the page map; false: it cannot hold them.
  static bool enter_pages(Address start, uint64_t bytes);
  // Gives a detached segment to its source; false: the driver refused, and it is still the caller's.
  bool give_back(const Segment& segment, SegmentSource& to);
  // The same, and puts it back if the driver refused; returns its bytes, 0 then.
  uint64_t hand_back(Segment* segment, SegmentSource& to);
  // A detached segment that the driver does not take, or that is not needed elsewhere.
  void put_back(Segment* segment);
  // All of a segment's bytes, or none: a block of it is held. pre: under the range lock.
  static uint64_t unheld_bytes(const Segment& segment);
  // Bytes that the driver would not take and nobody can use, until the end of the context.
  void add_lost(uint64_t bytes) { lost_.fetch_add(bytes, std::memory_order_relaxed); }
  uint64_t take_lost() { return lost_.exchange(0, std::memory_order_relaxed); }

  Tenancy& tenancy;
  Ranges& ranges;
  GrowthHistory& growth;

 private:
  std::atomic<uint64_t> lost_{0};
};

}  // namespace cupool::pool
