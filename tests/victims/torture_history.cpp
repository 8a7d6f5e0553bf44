// See torture_history.hpp.
#include "torture_history.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace torture {
namespace {

std::string name_of(const Mark& mark) {
  switch (mark.kind) {
    case Mark::kNothing:
      return "-";
    case Mark::kLegacy:
      return "legacy";
    case Mark::kOwn:
      return "own";
    case Mark::kEvent:
      return "event";
    case Mark::kCreated:
      return "stream " + std::to_string(mark.slot) + "." + std::to_string(mark.generation);
  }
  return "";
}

}  // namespace

thread_local History::Ring* History::ring_ = nullptr;

void History::note(Deed deed) {
  if (ring_ == nullptr) return;
  deed.at = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  ring_->deeds[ring_->count++ % kKept] = deed;
}

void History::tell(CUdeviceptr where) const {
  constexpr std::size_t kOfMemory = 12, kOfStreams = 600;
  using Told = std::pair<unsigned, Deed>;
  std::vector<Told> here, elsewhere;
  for (unsigned thread = 0; thread < rings_.size(); ++thread) {
    const Ring& ring = rings_[thread];
    for (std::size_t i = 0; i < std::min(ring.count, kKept); ++i) {
      const Deed& deed = ring.deeds[i];
      if (deed.p <= where && where - deed.p < deed.bytes) here.emplace_back(thread, deed);
      if (deed.bytes == 0) elsewhere.emplace_back(thread, deed);
    }
  }
  const auto earlier = [](const Told& a, const Told& b) { return a.second.at < b.second.at; };
  const auto keep_last = [&](std::vector<Told>& deeds, std::size_t most) {
    std::sort(deeds.begin(), deeds.end(), earlier);
    if (deeds.size() > most) deeds.erase(deeds.begin(), deeds.end() - static_cast<std::ptrdiff_t>(most));
  };
  keep_last(here, kOfMemory);
  if (here.empty()) return;
  const std::uint64_t begin = here.front().second.at;
  keep_last(elsewhere, kOfStreams);
  for (const Told& told : elsewhere) {
    if (told.second.at >= begin) here.push_back(told);
  }
  keep_last(here, here.size());
  for (const auto& [thread, deed] : here) {
    std::fprintf(stderr, "torture: %.3f us, thread %u: %s %#llx + %llu = %#x on %s after %s\n",
                 static_cast<double>(deed.at - begin) / 1e3, thread, deed.what, deed.p,
                 static_cast<unsigned long long>(deed.bytes), deed.value, name_of(deed.on).c_str(),
                 name_of(deed.after).c_str());
  }
}

}  // namespace torture
