// The streams of the torture victim: the two names of the legacy stream, the two of the thread's own, and a
// row of created ones that all threads share, each destroyed and created anew while others hold marks on it.
// A stream is used under a lease; all leases are tried, never waited for. Order between streams is the
// caller's business: it asks Streams::order() for it, as a valid program must.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "torture_api.hpp"
#include "torture_gates.hpp"

namespace torture {

// Where a piece of work went, so that later work elsewhere can be put behind it.
struct Mark {
  enum Kind { kNothing, kLegacy, kOwn, kCreated, kEvent };
  Kind kind = kNothing;
  unsigned slot = 0;
  std::uint64_t generation = 0;
  CUevent event = nullptr;  // kEvent: this block's alone, destroyed by whoever waits for it
  unsigned place = 0;  // kEvent: the number of the world in which it was recorded; else it is the holder's
  bool operator==(const Mark& other) const {
    return kind == other.kind && slot == other.slot && generation == other.generation && event == other.event;
  }
};

class Lease {
 public:
  CUstream stream = nullptr;
  bool per_thread_entry = false;  // through a _ptsz function, where 0 is the thread's own stream
  bool blocking = true;           // the legacy stream and this one wait for each other
  Mark mark;

  bool legacy() const { return mark.kind == Mark::kLegacy; }
  // The form of a call that reaches this stream.
  template <typename F>
  F pick(const Both<F>& both) const {
    return per_thread_entry ? both.per_thread : both.plain;
  }

 private:
  friend class Streams;
  std::shared_lock<std::shared_mutex> shared_;
  std::unique_lock<std::shared_mutex> alone_;
  // Of streams that this one waits for by itself: they must not be destroyed before the work is submitted.
  mutable std::vector<std::shared_lock<std::shared_mutex>> waited_for_;
};

// A stream that its thread keeps to itself.
inline Lease lease_of(CUstream stream) {
  Lease lease;
  lease.stream = stream;
  lease.mark.kind = Mark::kCreated;
  return lease;
}

class Streams {
 public:
  // `place`: the number of the world whose streams these are.
  Streams(const Api& api, Gates& gates, unsigned place) : api_(api), gates_(gates), place_(place) {}

  void create_all(Random& random);
  // After everybody stopped: forgets marks; streams go with their context, or are destroyed here.
  void destroy_all();

  // Some stream to work on: for long stretches the same for all threads, now and then a stray one.
  Lease choose(Random& random);
  // A stream that no other thread touches until the lease ends, fit for a capture; none: all are in use.
  std::optional<Lease> choose_alone(Random& random, bool own_allowed);
  // The stream of a mark, to record on; none: another thread captures on it.
  std::optional<Lease> stream_of(const Mark& mark);

  // Puts what is submitted to `target` from now on behind `mark`. False: not now, for somebody captures
  // there. `scratch` is an event of the calling thread, free again afterwards.
  bool order(Random& random, const Mark& mark, const Lease& target, CUevent scratch);
  // Makes the mark one that any thread can wait for: `event` is then the mark's own. pre: the unsafe gate.
  bool make_portable(Mark& mark, CUevent event);

  // Destroys a created stream, work queued or not, and puts another in its place. pre: the unsafe gate.
  void replace_one(Random& random);

  // What may not be done on the legacy stream while a blocking one captures: held around each single call.
  Pass pass(const Lease& lease) { return lease.legacy() ? Pass(gates_.legacy, Side::kCall) : Pass(); }
  void record(CUevent event, const Lease& lease);
  void wait_for_event(const Lease& target, CUevent event);
  // Held around a graph launch and around a wait for an event: drivers lose a wait that is made while another
  // thread launches a graph into the same stream, so a program has to keep the two apart. Also around a
  // stream-ordered allocation, which may make such a wait.
  std::unique_lock<std::mutex> apart(const Lease& lease);
  // The same around records and stream-ordered frees, unless they are to be beside launches: not a byte was
  // wrong with that, but some processes failed in other ways (docs/known-issues.md).
  std::unique_lock<std::mutex> apart_unless_beside(const Lease& lease) {
    return options.has(kBeside) ? std::unique_lock<std::mutex>() : apart(lease);
  }

 private:
  static constexpr unsigned kCreated = 6;
  static constexpr unsigned kCodes = 4 + kCreated;
  static constexpr unsigned kMix = ~0u;

  struct Slot {
    std::shared_mutex mutex;
    CUstream stream = nullptr;
    bool blocking = false;
    std::uint64_t generation = 1;
    CUevent last_words = nullptr;  // covers every generation before this one
    std::mutex apart;
  };

  void create(Slot& slot, Random& random);
  Lease by_code(unsigned code);
  std::optional<Lease> created(unsigned index);
  bool waits_by_itself(const Mark& mark, const Lease& target);

  const Api& api_;
  Gates& gates_;
  const unsigned place_;
  std::array<Slot, kCreated> slots_;
  std::mutex legacy_apart_;
  std::atomic<unsigned> common_{0};
};

}  // namespace torture
