// The gatherer of a trace: takes what threads have put into their rings, keeps the set of what is live, and
// makes blocks of it, which go into the file or are kept in memory. One lock, its own; whoever finds it taken
// goes without. Calls no driver, and allocates nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/lock.hpp"
#include "trace/encoder.hpp"
#include "trace/kept_blocks.hpp"
#include "trace/live_set.hpp"
#include "trace/place.hpp"
#include "trace/recorder.hpp"
#include "trace/records.hpp"
#include "trace/ring.hpp"

namespace cupool::trace {

// The number of the calling thread, by the kernel.
int this_thread();

class Gatherer {
 public:
  static constexpr size_t kIndexed = 512;  // blocks that one index names

  bool begin(const About& about, const Settings& settings) CUPOOL_EXCLUDES(lock_);
  // Whether the lock was free within a moment.
  bool gather(int* kept) CUPOOL_EXCLUDES(lock_);
  // The same, without waiting.
  bool gather_if_nobody_does() CUPOOL_EXCLUDES(lock_);
  void finish() CUPOOL_EXCLUDES(lock_);
  bool end() CUPOOL_EXCLUDES(lock_);
  bool holds(uint64_t address, uint8_t kind) CUPOOL_EXCLUDES(lock_) {
    if (!enter()) return true;
    const bool found = live_.holds(address, kind);
    leave();
    return found;
  }
  bool visit_kept(Put put, void* argument) CUPOOL_EXCLUDES(lock_);
  bool visit_live(See see, void* argument) CUPOOL_EXCLUDES(lock_);
  const char* path() const CUPOOL_NO_THREAD_SAFETY_ANALYSIS { return place_.path(); }
  bool is_kept() const CUPOOL_NO_THREAD_SAFETY_ANALYSIS { return settings_.kept_bytes != 0; }
  bool is_written_now() const CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
    return settings_.has_output && settings_.kept_bytes == 0;
  }
  bool find_block(uint64_t address, LiveSet::Item* out) CUPOOL_EXCLUDES(lock_);
  // Whether the thread that asks is gathering: a signal handler has interrupted it.
  bool is_here() const { return gathering_thread_.load(std::memory_order_relaxed) == this_thread(); }
  void forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS;

 private:
  static constexpr size_t kBlockContent = 32 << 10;  // bytes

  bool enter() CUPOOL_TRY_ACQUIRE(true, lock_);
  bool enter_at_once() CUPOOL_TRY_ACQUIRE(true, lock_);
  // Whether there is a file.
  bool is_written() const CUPOOL_REQUIRES(lock_) { return settings_.has_output && settings_.kept_bytes == 0; }
  void leave() CUPOOL_RELEASE(lock_);

  void gather_all(int* kept) CUPOOL_REQUIRES(lock_);
  void gather_ring(Ring& ring, int* kept) CUPOOL_REQUIRES(lock_);
  void follow(Event event, uint64_t time, uint32_t thread, const uint64_t* words) CUPOOL_REQUIRES(lock_);
  void write_lost(uint64_t lost, int* kept) CUPOOL_REQUIRES(lock_);
  void write_live_set(int* kept) CUPOOL_REQUIRES(lock_);
  void write_index(int* kept) CUPOOL_REQUIRES(lock_);
  // What stacks, and what they consist of, are new.
  void write_stacks(int* kept) CUPOOL_REQUIRES(lock_);
  // `put` puts one record; false: there is no room for it in a block that has room.
  template <typename PutRecord>
  bool write_record(BlockKind kind, int* kept, PutRecord&& put) CUPOOL_REQUIRES(lock_);
  void close_records() CUPOOL_REQUIRES(lock_);
  void forget_told_stacks() CUPOOL_REQUIRES(lock_);

  // Blocks are made one after the other in `out`, and written together.
  void open_block(BlockKind kind, uint64_t time, uint32_t thread, int* kept) CUPOOL_REQUIRES(lock_);
  void close_block(uint16_t flags) CUPOOL_REQUIRES(lock_);
  void close_block(size_t content, uint32_t count, uint16_t flags) CUPOOL_REQUIRES(lock_);
  void flush(int* kept) CUPOOL_REQUIRES(lock_);
  void stop(const char* why) CUPOOL_REQUIRES(lock_);
  void make_about() CUPOOL_REQUIRES(lock_);
  void write_ended(Ending why, int* kept) CUPOOL_REQUIRES(lock_);
  void end(Ending why) CUPOOL_REQUIRES(lock_);
  // There is no file any more; what is live may still be wanted.
  void leave_file() CUPOOL_REQUIRES(lock_);

  Lock lock_{Rank::kTrace};
  std::atomic<int> gathering_thread_{0};
  About about_ CUPOOL_GUARDED_BY(lock_);
  Settings settings_ CUPOOL_GUARDED_BY(lock_);
  Place place_ CUPOOL_GUARDED_BY(lock_);
  KeptBlocks kept_ CUPOOL_GUARDED_BY(lock_);
  LiveSet live_ CUPOOL_GUARDED_BY(lock_);
  Encoder encoder_ CUPOOL_GUARDED_BY(lock_);
  Records records_ CUPOOL_GUARDED_BY(lock_);
  BlockKind records_kind_ CUPOOL_GUARDED_BY(lock_) = BlockKind::kAbout;  // of the open block; kAbout: none
  Put sink_ CUPOOL_GUARDED_BY(lock_) = nullptr;  // who gets the blocks instead of file and memory
  void* sink_argument_ CUPOOL_GUARDED_BY(lock_) = nullptr;
  BlockHead head_ CUPOOL_GUARDED_BY(lock_);  // of the open block
  uint64_t sequence_ CUPOOL_GUARDED_BY(lock_) = 0;
  uint64_t began_ CUPOOL_GUARDED_BY(lock_) = 0;
  uint64_t round_ CUPOOL_GUARDED_BY(lock_) = 0;         // when this gathering began
  uint64_t round_before_ CUPOOL_GUARDED_BY(lock_) = 0;  // and the one before
  uint64_t since_live_set_ CUPOOL_GUARDED_BY(lock_) = 0;
  uint64_t live_set_bytes_ CUPOOL_GUARDED_BY(lock_) = 0;
  uint64_t last_index_ CUPOOL_GUARDED_BY(lock_) = 0;
  size_t indexed_ CUPOOL_GUARDED_BY(lock_) = 0;
  size_t used_ CUPOOL_GUARDED_BY(lock_) = 0;
};

extern constinit Gatherer gatherer;

}  // namespace cupool::trace
