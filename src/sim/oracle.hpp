// The oracle: a race detector over lives. A life runs from an allocation of the application to its free; an
// operation belongs to the lives whose bytes it touches. An operation of a new life on bytes for which an
// older life has an operation that is not ordered before it is a hazard, whatever the schedule did.
// Guarded by the state mutex. Judges at submission, from clocks alone: it must never look at what has run,
// save through the host clock, which is what the program itself has seen finished.
// Mapped memory is watched beside the lives in it: unmapping does not wait, so whoever unmaps must have seen
// the end of all work there. A chunk that is mapped at several places is the same memory at all of them.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/clock.hpp"

namespace cupool::sim {

struct Span;
struct Stream;
struct Work;

class Oracle {
 public:
  // A new life; `kind` names the call that began it, `freed` what the frees of its context had waited for by
  // then.
  void begin(CUdeviceptr p, std::uint64_t bytes, const char* kind, std::uint64_t context_id,
             std::shared_ptr<const VectorClock> freed);
  // The application frees: told before the free goes down, taken back by revive() if that fails. False when
  // nothing lives there: then there is nothing to take back either.
  bool end(CUdeviceptr p);
  // The context whose memory the life at `p` is; 0: nothing lives there.
  std::uint64_t context_of(CUdeviceptr p) const;
  // What frees had waited for when the lives in these bytes began: work that uses them came after that.
  VectorClock freed_before(CUdeviceptr lo, CUdeviceptr hi);
  void revive(CUdeviceptr p);
  void end_context(std::uint64_t context_id);

  // Operation `position` of the stream's timeline, ordered after `after`, is being submitted.
  void operation(const Stream& stream, std::uint64_t position, const VectorClock& after, const Work& work,
                 const VectorClock& host);
  // The host itself touches managed bytes, having seen `host` finished.
  void host_touch(CUdeviceptr lo, CUdeviceptr hi, const VectorClock& host);
  // Memory went back to the device: nobody may still be living there.
  void memory_gone(CUdeviceptr lo, CUdeviceptr hi, const char* how);

  // Memory was mapped; it is about to be unmapped by a call that `how` describes. `over` tells whether the
  // operation at a position of a timeline can no longer touch anything.
  void mapping_begins(CUdeviceptr p, std::uint64_t bytes, CUmemGenericAllocationHandle chunk);
  template <typename Over>
  void mapping_ends(CUdeviceptr p, const std::string& how, Over&& over);

  std::uint64_t hazards() const { return hazards_; }
  std::uint64_t lives() const { return next_number_ - 1; }
  std::uint64_t strays() const { return strays_; }
  const std::vector<std::string>& stories() const { return stories_; }

 private:
  struct Access {
    TimelineId timeline = 0;
    std::uint64_t position = 0;
    CUdeviceptr lo = 0;
    CUdeviceptr hi = 0;
    std::shared_ptr<const VectorClock> after;
    std::shared_ptr<const std::string> story;
  };
  struct Life {
    std::uint64_t number = 0;
    CUdeviceptr lo = 0;
    CUdeviceptr hi = 0;
    const char* kind = "";
    std::uint64_t context_id = 0;
    std::shared_ptr<const VectorClock> freed;  // what the frees of its context had waited for
    std::vector<Access> accesses;
  };
  using LifePtr = std::shared_ptr<Life>;
  // The newest operation of each timeline is enough: those before it in its timeline are over when it is.
  struct Mapping {
    CUdeviceptr hi = 0;
    CUmemGenericAllocationHandle chunk = 0;
    std::map<TimelineId, Access> newest;
  };

  template <typename F>
  void each_live(CUdeviceptr lo, CUdeviceptr hi, F&& visit);
  template <typename F>
  void each_ended(CUdeviceptr lo, CUdeviceptr hi, F&& visit);
  template <typename F>
  void each_mapping(CUdeviceptr lo, CUdeviceptr hi, F&& visit);
  template <typename F>
  void each_alias(CUdeviceptr lo, CUdeviceptr hi, F&& visit);
  void report_owners(const Life& life, const Life& other);
  void judge_at(const Life& life, CUdeviceptr lo, CUdeviceptr hi, const VectorClock& after,
                const std::string& story, const VectorClock& host);
  void bury(const LifePtr& life);
  void exhume(const LifePtr& life);
  void drop_dominated(const Life& life);
  void judge(const Life& life, CUdeviceptr lo, CUdeviceptr hi, const VectorClock& after,
             const std::string& story, const VectorClock& host);
  void note(Life& life, Access access);
  void report(const std::string& story);
  void note_in_mappings(const Access& access);
  void report_unmapped(CUdeviceptr p, const Mapping& mapping, const Access& access, const std::string& how);
  static std::string describe(const Life& life);

  std::map<CUdeviceptr, LifePtr> live_;
  std::unordered_map<std::uint64_t, std::vector<LifePtr>> ended_;  // by 2 MiB page, while they have accesses
  std::map<CUdeviceptr, LifePtr> last_ended_;                      // for revive()
  std::map<std::pair<std::uint64_t, std::uint64_t>, bool> told_;   // pairs of lives already reported
  std::map<CUdeviceptr, Mapping> mappings_;
  std::multimap<CUmemGenericAllocationHandle, CUdeviceptr> places_;  // of chunks that are mapped
  std::vector<std::string> stories_;
  std::uint64_t hazards_ = 0;
  std::uint64_t strays_ = 0;
  std::uint64_t next_number_ = 1;
};

template <typename Over>
void Oracle::mapping_ends(CUdeviceptr p, const std::string& how, Over&& over) {
  const auto found = mappings_.find(p);
  if (found == mappings_.end()) return;
  for (const auto& [timeline, access] : found->second.newest) {
    if (!over(timeline, access.position)) report_unmapped(p, found->second, access, how);
  }
  const auto [first, last] = places_.equal_range(found->second.chunk);
  for (auto place = first; place != last; ++place) {
    if (place->second != p) continue;
    places_.erase(place);
    break;
  }
  mappings_.erase(found);
}

}  // namespace cupool::sim
