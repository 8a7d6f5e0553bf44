// The process's memory: one timeline, one pool per context, one cache per thread and pool. What hooks call.
// The hot path of an allocation and of a free is in hot_path.hpp, a page long. A context that ends takes its
// pool out of the table; the same handle seen again gets a new pool.
#pragma once

#include <atomic>

#include "driver/driver.hpp"
#include "order/timelines.hpp"
#include "pool/native.hpp"
#include "pool/pool.hpp"
#include "pool/wholes.hpp"

namespace cupool::pool {

// Whether a thread had a block to hand out.
enum class Kept { kTaken, kNone, kUnknown };
// What is left to do after a free: nothing, the thread keeps the block; perhaps a seal, for work is under
// way; everything, because nobody held it, the thread has no room, or there is something special about the
// block or its pool.
enum class Unkept { kNot, kUnsealed, kNobodys, kNoRoom, kSpecial };
// In the size that was asked for: the block that was freed is a marked one (marks.hpp).
inline constexpr uint64_t kMarkedAsked = uint64_t{1} << 63;
// Whether a free waits for all work where CUPOOL_FREE=sync: a stream-ordered one never does.
enum class Waits { kIfAsked, kNever };

class Pools {
 public:
  constexpr explicit Pools(driver::Driver* driver) : driver_(driver), order_(driver) {}

  // `bytes` > 0 in the current context, which is `context`. The driver's status.
  Status allocate(driver::Context context, uint64_t bytes, Address* out);
  // The same in two steps: a block that this thread keeps; else allocate_missed() if it has none, and
  // allocate_carefully() if that is not known. `out` is an address.
  template <typename Word>
  Kept allocate_kept(driver::Context context, uint64_t bytes, Word* out);
  Status allocate_missed(driver::Context context, uint64_t bytes, Address* out);
  Status allocate_carefully(driver::Context context, uint64_t bytes, Address* out);
  Freed free(Address address, Waits waits = Waits::kIfAsked);
  // The same in two steps: if the thread did not keep the block, finish_free() must follow with the answers.
  Unkept free_kept(Address address, uint64_t* asked);
  Freed finish_free(Address address, Unkept why, uint64_t asked, Waits waits = Waits::kIfAsked);
  // Or, instead of it: the free is refused and the application still holds the block.
  void refuse_free(Address address, Unkept why, uint64_t asked);
  // The same for memory of another source, which is never cut.
  Status allocate_whole(driver::Context context, driver::Driver& source, uint64_t bytes, Address* out);
  // From now on no block is cut from a segment: each is an allocation of the driver's.
  void use_whole_allocations() { whole_only_.store(true, std::memory_order_relaxed); }

  // The driver's stream-ordered pool: as the first source of blocks, or only where the pool has none left.
  enum class NativeUse { kFirst, kLast };
  void use_native(Native* native, NativeUse use);
  // Null when it is not in use.
  bool serves_native() const { return native_first_.load(std::memory_order_relaxed); }
  Native* native() const { return native_.load(std::memory_order_acquire); }

  // The block that holds an address; false: not ours, or held by nobody.
  bool find(Address address, Pool::Held* out) const;
  // Runs `f(const Mark&)`, or changes the mark, of the block that holds an address; false: nobody holds it.
  template <typename F>
  bool with_mark(Address address, F&& f) const {
    if (Pool* pool = pool_at(address)) return pool->with_mark(address, f);
    Wholes* wholes = wholes_.load(std::memory_order_acquire);
    return wholes != nullptr && wholes->with_mark(address, f);
  }
  // The block that holds an address, or all in a range of addresses, are not handed to another owner.
  bool taint(Address address, Taint reason, uint64_t bytes = 1) const;
  // Whether an address lies in memory that the pool got from the driver.
  bool owns(Address address) const;
  // Whether there may be blocks that the page map does not know.
  bool has_wholes() const { return wholes_.load(std::memory_order_relaxed) != nullptr; }

  // Before a context goes away: what there is of it is dropped, and until closed() what other threads
  // allocate there is the driver's business. What to tell closed() when the call that was to end it has
  // returned; `gone` false: the driver refused, and the context goes on.
  uint64_t begin_end(driver::Context context);
  void closed(driver::Context context, uint64_t ending, bool gone);
  // The same for one that has ended already, or is part of another.
  void close(driver::Context context);
  // The context is of no use any more, but the program still holds it: all its memory is the driver's
  // business from now on.
  void fail(driver::Context context);
  // The device of a context whose memory is pooled; false: none is.
  bool device_of(driver::Context context, int* device);
  // The pool of a context, or null.
  Pool* pool_of(driver::Context context);
  // Gives back all that can be: somebody else needs the memory. How many bytes went back. Of pools that cut
  // their memory, those of one device, or of all.
  static constexpr int kEveryDevice = -1;
  uint64_t release_everything(int device = kEveryDevice);
  // What the driver would have more of after that, for the current context's device.
  uint64_t releasable_bytes(driver::Context context);

  // Keeps at most `keep` free bytes of each kind in each pool; how many went back.
  uint64_t trim(uint64_t keep);
  // In place of CUPOOL_MAX_CACHED, for pools to come too.
  void set_max_cached(uint64_t bytes);
  // The program has just waited for all its work: what was idle for long may go.
  void decay();
  // Managed memory that lies idle may occupy the device, and nobody can tell how much: keep little before
  // such a question.
  void release_idle_managed(driver::Context context);

  // The largest free range or block of a device; 0 when somebody holds the lock, with `wait` for more than a
  // moment.
  uint64_t largest_free(int device, bool wait);

  order::Timelines& order() { return order_; }
  // The timeline of a context's memory; null: it has none.
  order::Timeline* timeline_of(driver::Context context) { return order_.find(context); }
  // Before a block leaves the process, or the order of streams: its old work is over when this returns.
  void settle(Address address);
  driver::Driver& driver() { return *driver_; }

  // The calling thread ends: what it kept goes back.
  static void end_thread();
  void forget_after_fork();

  template <typename F>
  void for_each(F&& f) {
    for (auto& slot : pools_) {
      Pool* pool = slot.load(std::memory_order_acquire);
      if (pool != nullptr && pool->context() != nullptr) f(*pool);
    }
  }

 private:
  static constexpr size_t kMostPools = 256;
  // A thread may still be in the middle of a call on a pool that was closed. It must not find another
  // context's memory there, so the last few to be closed rest.
  static constexpr size_t kResting = 8;
  static constexpr uint64_t kFromOptions = ~uint64_t{0} - 1;

  Freed free_unkept(Address address, uint64_t asked, Waits waits);
  static void end_free(Pool& pool, ThreadCache& cache, uint64_t bytes, Waits waits);
  // While one of these lives its context does not end. `welcome` false: it does, or has failed.
  class Arrival;
  // A closed pool of a device that may serve another context: the one that was closed first.
  Pool* rested_pool_locked(int device) const CUPOOL_REQUIRES(lock_);
  bool is_off_locked(driver::Context context) const CUPOOL_REQUIRES(lock_);
  bool has_arrivals(driver::Context context) CUPOOL_EXCLUDES(lock_);
  Status allocate_native(driver::Context context, uint64_t bytes, Address* out);
  Status forward(uint64_t bytes, Address* out);
  Status allocate_past_the_pool(driver::Context context, uint64_t bytes, Address* out);
  Status allocate_at_last(Pool& pool, driver::Context context, uint64_t bytes, Status status, Address* out);
  Freed free_whole(Address address, Waits waits);
  driver::Context owner_of_whole(Address address);
  uint64_t release_whole();
  uint64_t trim_whole(uint64_t keep);
  Wholes* wholes();
  static Pool* pool_at(Address address);
  ThreadCache* cache_of(driver::Context context);
  ThreadCache* find_cache(Pool* pool);
  Pool* open(driver::Context context);

  driver::Driver* driver_;
  order::Timelines order_;
  Lock lock_;
  std::array<std::atomic<Pool*>, kMostPools> pools_{};
  std::atomic<uint64_t> max_cached_{kFromOptions};
  std::vector<driver::Context> failed_ CUPOOL_GUARDED_BY(lock_);
  uint64_t closings_ CUPOOL_GUARDED_BY(lock_) = 0;
  std::vector<driver::Context> ending_ CUPOOL_GUARDED_BY(lock_);
  std::vector<driver::Context> arriving_ CUPOOL_GUARDED_BY(lock_);
  std::atomic<bool> whole_only_{false};
  std::atomic<bool> native_first_{false};
  std::atomic<Native*> native_{nullptr};
  std::atomic<Wholes*> wholes_{nullptr};  // made when the first one is asked for, then there for good
};

class Pools::Arrival {
 public:
  Arrival(Pools& pools, driver::Context context);
  ~Arrival();
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;
  bool is_welcome() const { return welcome_; }

 private:
  Pools& pools_;
  const driver::Context context_;
  bool welcome_;
};

}  // namespace cupool::pool
