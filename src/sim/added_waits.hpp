// The second oracle: waits that a preloaded library adds. The driver's free returns when all work of its
// context submitted before it is done; a wait for such work, made any time later, is none that the library
// adds. A wait for anything submitted after the last free is: the program may rely on the waiting work to
// release it. Which frees count is CUPOOL_SIM_WAITS's to say. Judges by clocks alone, as the oracle does:
// what happened to run does not matter. Under the state mutex.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/clock.hpp"

namespace cupool::sim {

struct Context;
struct EventRecord;
struct Stream;

class AddedWaits {
 public:
  // Between the two another thread may already be given the memory.
  void free_begins(std::uint64_t context_id) { frees_under_way_.insert(context_id); }
  void free_ends(std::uint64_t context_id) { frees_under_way_.erase(frees_under_way_.find(context_id)); }
  // A free of the application has ended: the driver's would have waited for all of `target`.
  void freed(const VectorClock& target, std::uint64_t thread);

  // The library makes a stream, all later work of a context, or the calling thread wait. Each says nothing
  // of a wait that is the application's own.
  void stream_waits(const Stream& stream, const EventRecord& record);
  void context_waits(const Context& context, const EventRecord& record);
  void host_waits(const char* call, const VectorClock& target);

  // Whether the calling thread is about to wait for longer than the application's own call would.
  bool is_longer_than_asked(const VectorClock& target) const;

  std::uint64_t count() const { return count_; }
  const std::vector<std::string>& stories() const { return stories_; }

 private:
  VectorClock allowed() const;
  // `base`: what is waited for anyway.
  void judge(const std::string& who, const std::string& what, const VectorClock& target,
             const VectorClock& base);

  std::multiset<std::uint64_t> frees_under_way_;  // ids of contexts
  VectorClock freed_any_;
  std::unordered_map<std::uint64_t, VectorClock> freed_by_;
  std::uint64_t count_ = 0;
  std::vector<std::string> stories_;
};

// "operation 4 of stream #3 (wait value)", for reports.
std::string describe_position(TimelineId timeline, std::uint64_t position);
std::string describe_stream(const Stream& stream);

}  // namespace cupool::sim
