// One search for a block that the calling thread's cache could not serve: slabs, ranges, waiting, the driver,
// cheapest first. Says what is looked for, how far it may reach by now, and what was found. Each part takes
// its own lock; no pool lock is held across a call of the driver.
#pragma once

#include "allocator/allocator.hpp"
#include "pool/growth.hpp"
#include "pool/ranges.hpp"
#include "pool/segment_source.hpp"
#include "pool/thread_cache.hpp"
#include "stats/service.hpp"

namespace cupool::pool {

class Search {
 public:
  // For a block of this class, or of `bytes` if no class has it, for the thread that has this cache.
  Search(Pool& pool, ThreadCache& cache, unsigned size_class, uint64_t bytes, allocator::Short when_short);

  // Whether a block was found; it is counted, and not yet tagged as live.
  bool run();
  const Entry& found() const { return found_; }
  // The driver's, if none was.
  driver::Status status() const { return request_.status; }

 private:
  // How it was found, for statistics.
  // As stats::Service has them.
  enum class How { kThread, kSlab, kRange, kAfterWait, kMiss };
  static_assert(static_cast<int>(How::kMiss) == static_cast<int>(stats::Service::How::kMiss));

  bool find_small();
  bool find_large();
  bool fetch_small();
  bool fetch_small_reached();
  bool fetch_wanted();
  bool take_after_wait();
  Range* take_kept_range();
  Range* take_own_range();
  Range* take_range(How how, Ranges::Cut cut = Ranges::Cut::kUnlessOneIsPending);
  Range* find_range();
  Range* find_in_crowd();
  Range* replace_segment();
  bool may_spare_segments() const;
  Range* spare_segment();
  Range* make_range();
  Range* make_range_for_lane();
  void note_want_of_seal();
  Range* take_after_growth();

  // ---- More memory (search_grow.cpp).

  Range* grow();
  Range* take_after_frees();
  bool may_help_to_wait();
  Range* add_segment(uint64_t bytes);
  Range* add_smaller_segment(uint64_t bytes, uint64_t exact);
  Range* take_smaller_slab(How how);
  uint64_t least_bytes() const;
  uint64_t release_for_growth();
  bool is_all_before_last_free();

  order::Timeline& order() const { return order_; }
  Ranges& ranges() const;
  bool is_for_small() const { return wants_slab_ || growth::is_small(bytes_); }
  Ranges::Where where() const;

  Pool& pool_;
  ThreadCache& cache_;
  order::Timeline& order_;
  const unsigned size_class_;
  const uint64_t asked_;
  const bool wants_slab_;  // for a block of the class; if one is found meanwhile, none is wanted any more
  const unsigned range_class_;  // of the range that is looked for, once nothing cheaper is left
  uint64_t bytes_ = 0;          // of that range
  const allocator::Short when_short_;
  How how_ = How::kThread;
  SegmentRequest request_;
  Entry found_{};
  bool has_small_ = false;    // a block was found where a slab was wanted
  bool is_anywhere_ = false;  // the pool cannot grow: segments for the other kind of blocks will do
};

}  // namespace cupool::pool
