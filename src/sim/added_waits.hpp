// The second oracle: waits that a preloaded library adds. The driver's free returns when all work of its
// context submitted before it is done, and holds up whoever works in that context meanwhile; a wait for such
// work, made any time later, is none that the library adds. A wait for anything submitted after the last free
// is: the program may rely on the waiting work to release it. Which frees count is CUPOOL_SIM_WAITS's to say.
// Across contexts only a thread's own frees count, for a free holds up no other context. Hence what a stream
// or a context is made to wait for in another is judged when work is submitted behind it: by the frees of the
// thread that submits, and by the memory that the work names, for memory cannot be had while a free of its
// context waits. Judges by clocks alone, as the oracle does: what happened to run does not matter. Green
// contexts are parts of one context. Under the state mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/clock.hpp"

namespace cupool::sim {

struct Context;
struct EventRecord;
struct Stream;
struct Work;

class AddedWaits {
 public:
  // Between the two another thread may already be given the memory.
  void free_begins(std::uint64_t context_id) { frees_under_way_.insert(context_id); }
  void free_ends(std::uint64_t context_id) { frees_under_way_.erase(frees_under_way_.find(context_id)); }
  bool is_freeing(std::uint64_t context_id) const { return frees_under_way_.count(context_id) != 0; }
  // A free of the application has ended: the driver's would have waited for all of `target`.
  void freed(std::uint64_t context_id, const VectorClock& target, std::uint64_t thread);
  // What the frees of the context have waited for, those under way included: no memory is had there before.
  std::shared_ptr<const VectorClock> freed_in(std::uint64_t context_id) const;

  // The driver's own pool has seen all of this finished: what it gives out next waits for nothing.
  void seen_done(const VectorClock& clock) { done_.join(clock); }

  // The library makes a stream, all later work of a context, or the calling thread wait. Each says nothing
  // of a wait that is the application's own.
  void stream_waits(const Stream& stream, const EventRecord& record);
  void context_waits(const Context& context, const EventRecord& record);
  void host_waits(const char* call, const VectorClock& target);
  // Operation `position` of the stream was submitted, ordered after `after`: the waits for other contexts
  // that lie before it are judged.
  void submitted(const Stream& stream, std::uint64_t position, const Work& work, const VectorClock& after);
  bool has_any_to_judge() const { return !crossings_.empty(); }

  // Whether the calling thread is about to wait for longer than the application's own call would.
  bool is_longer_than_asked(const VectorClock& target) const;

  std::uint64_t count() const { return count_; }
  const std::vector<std::string>& stories() const { return stories_; }

 private:
  // An added wait of a stream, or of all later work of a context, for work of another context.
  struct Crossing {
    std::uint64_t stream = 0;   // 0: of the whole context
    std::uint64_t context = 0;  // 0: of the stream alone
    std::uint64_t whole = 0;    // the context that waits; of a green one, what it is a part of
    VectorClock target;         // in other contexts, and not waited for anyway
    std::string who;
    std::string what;
    std::uint64_t thread = 0;     // that made it
    bool is_before_work = false;  // made by a call that goes on to submit work to the stream
    // Operations that were found right to wait so; what follows them waits by the program's own order.
    std::vector<std::pair<TimelineId, std::uint64_t>> passed;
  };

  // A free of the context waits for `target`; without crossings that are not judged yet, the driver's would
  // wait for this much.
  VectorClock without_crossings(std::uint64_t context_id, const VectorClock& target) const;
  VectorClock allowed_anywhere() const;
  // Work of other contexts is included that the program ordered work of this one after: its frees waited for
  // that, too.
  VectorClock allowed_within(std::uint64_t context_id) const;
  // The part of `target` in the context, or in all others, that is neither waited for anyway nor allowed.
  VectorClock excess(const VectorClock& target, const VectorClock& base, const VectorClock& allowed,
                     std::uint64_t context_id, bool within) const;
  void blame(const std::string& who, const VectorClock& excess, const char* why, const std::string& what);
  void judge_within(const std::string& who, const std::string& what, const VectorClock& target,
                    const VectorClock& base, std::uint64_t context_id);
  void keep(Crossing crossing);
  // Whether the crossing is done with.
  bool judge(Crossing& crossing, const Stream& stream, std::uint64_t position, const Work& work,
             const VectorClock& after);

  std::multiset<std::uint64_t> frees_under_way_;  // ids of contexts
  std::unordered_map<std::uint64_t, std::shared_ptr<const VectorClock>> freed_in_;
  std::unordered_map<std::uint64_t, VectorClock> freed_by_;
  VectorClock done_;
  std::vector<Crossing> crossings_;
  std::uint64_t count_ = 0;
  std::vector<std::string> stories_;
};

// "operation 4 of stream #3 (wait value)", for reports.
std::string describe_position(TimelineId timeline, std::uint64_t position);
std::string describe_stream(const Stream& stream);

}  // namespace cupool::sim
