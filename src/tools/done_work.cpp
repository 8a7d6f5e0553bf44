// See done_work.hpp.
#include "tools/done_work.hpp"

#include <algorithm>

namespace cupool::tools {

void DoneWork::seal(uint8_t place, uint64_t epoch, uint64_t step) {
  auto& seals = seals_[place];
  const bool is_first = seals.empty() || seals.back().second >> 8 != step;
  seals.push_back({epoch, Event::event(step, is_first ? 1 : (seals.back().second & 0xff) + 1)});
}

void DoneWork::note(uint8_t place, uint64_t epoch, const Seen& seen, replay::Place* here) const {
  const auto found = seals_.find(place);
  if (found == seals_.end()) return;
  const auto& seals = found->second;
  const auto beyond = std::upper_bound(seals.begin(), seals.end(), epoch,
                                       [](uint64_t one, const auto& seal) { return one < seal.first; });
  if (beyond != seals.begin())
    here->done.push_back({std::prev(beyond)->second, seen.step, seen.asked, seen.by});
}

void DoneWork::settle(replay::Place* place) {
  std::stable_sort(place->done.begin(), place->done.end(),
                   [](const auto& a, const auto& b) { return a.seen < b.seen; });
  size_t kept = 0;
  for (const Event& one : place->done) {
    if (kept == 0 || one.upto > place->done[kept - 1].upto) place->done[kept++] = one;
  }
  place->done.resize(kept);
}

}  // namespace cupool::tools
