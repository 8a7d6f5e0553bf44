// The interface that all allocators share off the hot path, so that the front (memory/) treats them alike and
// a new kind of memory is one more class. An allocator owns blocks of every context it has served, asks the
// driver for memory through upstream/, and holds no lock of its own across a call of the driver.
#pragma once

#include <cstdint>
#include <type_traits>

#include "allocator/marks.hpp"
#include "driver/driver.hpp"

namespace cupool::allocator {

using driver::Address;
using driver::Status;

// What a free found. kNotOurs: the driver's own memory, ask the driver. kNobodys: inside our memory, but not
// a block that the application holds (freed twice, or not where it starts).
enum class Freed { kDone, kNotOurs, kNobodys };

// Whether a free may wait for work and give memory back: a stream-ordered one never does.
enum class Waits { kIfAsked, kNever };

// A block that the application holds.
struct Held {
  Address start;
  uint64_t bytes;
  bool whole;  // the block is all of its segment
  Address segment;
  uint64_t segment_number;  // no two segments of a process have the same; 0: it is no part of one
  driver::Context context;
};

inline constexpr int kEveryDevice = -1;

// An allocator's answer when it does not serve a context at this moment: it ends, it has failed, or the host
// is short of memory. The driver serves then.
inline constexpr Status kDeclined = -1;

class Allocator {
 public:
  // `bytes` > 0 in the current context, which is `context`: the driver's status, or kDeclined. When it is
  // kOutOfMemory the allocator has given back what it could of its own.
  virtual Status allocate(driver::Context context, uint64_t bytes, Address* out) = 0;
  // Whether `bytes` more could be had if others gave memory back: they are neither more than the device has,
  // nor more than the user allows.
  virtual bool may_take(driver::Context context, uint64_t bytes) = 0;
  // Nobody had memory: counts it, and explains it if the user wants that.
  virtual void note_failure(driver::Context context, uint64_t bytes) = 0;
  virtual Freed free(Address address, Waits waits) = 0;

  // Whether an address lies in memory of this allocator, held or not.
  virtual bool owns(Address address) = 0;
  // The block that holds an address; false: nobody holds it.
  virtual bool find(Address address, Held* out) = 0;
  // Runs `f(Mark&)` for the block that holds an address; false: nobody holds it.
  template <typename F>
  bool with_mark(Address address, F&& f) {
    return visit_mark(
        address, [](Mark& mark, void* data) { (*static_cast<std::remove_reference_t<F>*>(data))(mark); }, &f);
  }
  // Held blocks in a range of addresses are not handed to another owner; whether there was one.
  virtual bool taint(Address address, uint64_t bytes, Taint reason) = 0;
  // The device of a context that it serves; false: it does not.
  virtual bool device_of(driver::Context context, int* device) = 0;

  // Idle memory goes back to the driver until at most `keep` bytes are left in each context; how many went.
  virtual uint64_t trim(uint64_t keep) = 0;
  // All that can be given back of a device, because somebody else needs it.
  virtual uint64_t release_everything(int device) = 0;
  // What was idle for CUPOOL_DECAY_MS goes back: the program has just waited for all its work.
  virtual void decay() = 0;
  // In place of CUPOOL_MAX_CACHED, for contexts to come too.
  virtual void set_max_cached(uint64_t bytes) = 0;
  // What the device would have more of after trim(0) of a context.
  virtual uint64_t releasable_bytes(driver::Context context) = 0;
  // The largest free piece on a device; 0 when somebody holds the lock, with `wait` for more than a moment.
  virtual uint64_t largest_free(int device, bool wait) = 0;

  // A context goes away, and no call of its is under way: its memory is the driver's business from now on.
  // What to tell ended() when the driver's call has returned; 0: nothing.
  virtual uint64_t begin_end(driver::Context context) = 0;
  // `gone` false: the driver refused, and the context goes on.
  virtual void ended(uint64_t ending, bool gone) = 0;

 protected:
  ~Allocator() = default;

 private:
  virtual bool visit_mark(Address address, void (*visit)(Mark&, void*), void* data) = 0;
};

}  // namespace cupool::allocator
