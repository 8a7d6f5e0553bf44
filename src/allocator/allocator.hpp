// The interface of all allocators off the hot path, so that the front end (memory/) treats them alike and a
// new kind of memory is one more class. An allocator owns the blocks of every context it serves, takes memory
// from the driver through upstream/, and holds no lock of its own across a call of the driver.
#pragma once

#include <cstdint>
#include <type_traits>

#include "allocator/marks.hpp"
#include "context/resident.hpp"
#include "driver/types.hpp"

namespace cupool::allocator {

using driver::Address;
using driver::kEveryDevice;
using driver::Status;

// What a free found. kNotOurs: the driver's own memory, ask the driver. kNotLive: inside our memory, but not
// the start of a live block (double free, or interior pointer).
enum class Freed { kDone, kNotOurs, kNotLive };

// Whether a free may wait for work and release memory: a stream-ordered free never does.
enum class Waits { kIfAsked, kNever };

// What an allocation does when the driver refuses memory: it releases what is idle, which may wait for work,
// or leaves that to its caller.
enum class Short { kMakeRoom, kLeave };

// A live block.
struct BlockInfo {
  Address start;
  uint64_t bytes;
  bool dedicated;  // the block is all of its segment
  Address segment;
  uint64_t segment_number;  // unique in the process; 0: not in a segment
  driver::Context context;
  bool mapped = false;        // of chunks, which the driver does not know as an allocation of cuMemAlloc's
  bool free_pending = false;  // a stream has yet to free it
  uint64_t given = 0;         // bytes of the block, with the slack
};

using VisitLive = void (*)(const BlockInfo& block, void* data);

// The allocator does not serve this context now (it is ending, has failed, or host memory is short): the
// driver serves instead.
inline constexpr Status kDeclined = -1;

// Memory to release without need.
struct Idle {
  uint64_t for_ms = 0;             // unused for so long
  uint64_t enough = ~uint64_t{0};  // no more than it takes to release so many bytes
  int device = kEveryDevice;
  bool only_quiet = false;                  // of contexts that were given no work for a while
  bool on_own_thread = false;               // the caller is not a thread of the program
  bool (*goes_on)() = [] { return true; };  // asked before each call of the driver; false: enough for now
};

// What is waited for so that memory can go back.
enum class Effort {
  kDone,   // nothing: memory on which no work is pending
  kFrees,  // what the driver's frees would have waited for
  kAll,    // all work, as the driver's free does
};
inline constexpr Effort kEfforts[] = {Effort::kDone, Effort::kFrees, Effort::kAll};
// How long a request of one context waits for the work of another on its device, at most. Under the driver it
// would wait for none: it is refused while the other's free stands. But if the program knows that free to be
// over, all it waited for was over too. Nobody can tell the two apart, so the wait ends before a program
// notices, and long after most kernels.
inline constexpr uint64_t kMostForOtherContexts = 250'000'000;  // nanoseconds
// Who asks for memory when a thread without a context does, as to make one: to it every context is another
// one. (Null, instead of who asks: whoever it is may wait for all of them.)
inline const driver::Context kOutside = reinterpret_cast<driver::Context>(uintptr_t{1});

// What ends with a context, context/resident.hpp says.
class Allocator : public context::Resident {
 public:
  // Allocates `bytes` > 0 in `context`, which is the current one; returns the driver's status or kDeclined.
  // On kOutOfMemory the allocator has already released what it could of its own.
  virtual Status allocate(driver::Context context, uint64_t bytes, Address* out) = 0;
  // Whether `bytes` more could succeed once others release memory: they fit the device and the user's limit.
  virtual bool may_take(driver::Context context, uint64_t bytes) = 0;
  // An allocation has failed for good: counts it, and reports why if the user wants that.
  virtual void note_failure(driver::Context context, uint64_t bytes) = 0;
  virtual Freed free(Address address, Waits waits) = 0;

  // Whether an address lies in memory of this allocator, live or not.
  virtual bool owns(Address address) = 0;
  // The live block that contains an address; false: there is none.
  virtual bool find(Address address, BlockInfo* out) = 0;
  // Runs `f(Mark&)` for the live block that contains an address; false: there is none.
  template <typename F>
  bool with_mark(Address address, F&& f) {
    return visit_mark(
        address, [](Mark& mark, void* data) { (*static_cast<std::remove_reference_t<F>*>(data))(mark); }, &f);
  }
  // Runs `f(const BlockInfo&)` for every live block, in no order: under a lock of the allocator's, so f only
  // takes notes. Of the BlockInfo start, bytes, given and context are told. A block that is allocated or
  // freed meanwhile is told or not.
  template <typename F>
  void for_each_live(F&& f) {
    visit_live(
        [](const BlockInfo& block, void* data) { (*static_cast<std::remove_reference_t<F>*>(data))(block); },
        &f);
  }
  // Live blocks in a range of addresses are not reused after their free; whether there was one.
  virtual bool taint(Address address, uint64_t bytes, Taint reason) = 0;
  // The device of a context that it serves; false: it does not serve it.
  virtual bool device_of(driver::Context context, int* device) = 0;

  // Releases idle memory until at most `keep` bytes are left in each context; returns the bytes released.
  virtual uint64_t trim(uint64_t keep) = 0;
  // Releases idle memory of a device, because it is needed elsewhere: all that such an effort reaches.
  virtual uint64_t release_everything(int device, Effort effort, driver::Context asking) = 0;
  // The most that it could release there, where so many bytes are wanted in one piece.
  virtual uint64_t most_releasable(int device, uint64_t wanted) = 0;
  // Releases memory that nobody needs, while nothing is pending in its context; returns the bytes released.
  virtual uint64_t release_idle(const Idle& which) = 0;
  // Overrides CUPOOL_MAX_CACHED, for future contexts too.
  virtual void set_max_cached(uint64_t bytes) = 0;
  // How many bytes trim(0) would free on a device.
  virtual uint64_t releasable_bytes(int device) = 0;
  // The largest free piece on a device; 0 when the lock is taken (with `wait`: for more than a moment).
  virtual uint64_t largest_free(int device, bool wait) = 0;

 protected:
  ~Allocator() = default;

 private:
  virtual bool visit_mark(Address address, void (*visit)(Mark&, void*), void* data) = 0;
  virtual void visit_live(VisitLive visit, void* data) = 0;
};

}  // namespace cupool::allocator
