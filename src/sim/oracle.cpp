// How the oracle stays small: an old operation that the host has seen finished precedes all that can still be
// submitted and is dropped; at the end of a life, older operations that one of its own covers and follows are
// dropped too, for whoever is ordered after the newer is ordered after the older. Under the state mutex.
#include "sim/oracle.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/say.hpp"
#include "sim/added_waits.hpp"
#include "sim/arena.hpp"
#include "sim/model.hpp"

namespace cupool::sim {
namespace {

constexpr std::size_t kStoriesKept = 16;
constexpr std::size_t kAccessesKept = 64;

std::string hex_span(CUdeviceptr lo, CUdeviceptr hi) { return make_text("[{:#x}, {:#x})", lo, hi); }

std::string describe_operation(const Stream& stream, std::uint64_t position, const Work& work) {
  return work.what + " on " + describe_stream(stream) + " (its operation " + std::to_string(position) + ")";
}

}  // namespace

template <typename F>
void Oracle::each_live(CUdeviceptr lo, CUdeviceptr hi, F&& visit) {
  auto next = live_.upper_bound(lo);
  if (next != live_.begin() && std::prev(next)->second->hi > lo) --next;
  for (; next != live_.end() && next->first < hi; ++next) visit(next->second);
}

template <typename F>
void Oracle::each_ended(CUdeviceptr lo, CUdeviceptr hi, F&& visit) {
  for (std::uint64_t page = lo / kGranule; page <= (hi - 1) / kGranule; ++page) {
    const auto found = ended_.find(page);
    if (found == ended_.end()) continue;
    auto& lives = found->second;
    for (const LifePtr& life : lives) {
      if (life->lo < hi && life->hi > lo) visit(*life);
    }
    lives.erase(
        std::remove_if(lives.begin(), lives.end(), [](const LifePtr& l) { return l->accesses.empty(); }),
        lives.end());
    if (lives.empty()) ended_.erase(found);
  }
}

template <typename F>
void Oracle::each_mapping(CUdeviceptr lo, CUdeviceptr hi, F&& visit) {
  auto next = mappings_.upper_bound(lo);
  if (next != mappings_.begin() && std::prev(next)->second.hi > lo) --next;
  for (; next != mappings_.end() && next->first < hi; ++next) visit(next->first, next->second);
}

// Where else these bytes lie.
template <typename F>
void Oracle::each_alias(CUdeviceptr lo, CUdeviceptr hi, F&& visit) {
  each_mapping(lo, hi, [&](CUdeviceptr p, const Mapping& mapping) {
    const auto [first, last] = places_.equal_range(mapping.chunk);
    for (auto place = first; place != last; ++place) {
      const CUdeviceptr other = place->second;
      if (other != p) visit(other + (std::max(lo, p) - p), other + (std::min(hi, mapping.hi) - p));
    }
  });
}

std::string Oracle::describe(const Life& life) {
  return "life " + std::to_string(life.number) + " (" + life.kind + ", " + std::to_string(life.hi - life.lo) +
         " bytes at " + hex_span(life.lo, life.hi) + ")";
}

void Oracle::report(const std::string& story) {
  ++hazards_;
  if (stories_.size() < kStoriesKept) stories_.push_back(story);
}

void Oracle::bury(const LifePtr& life) {
  last_ended_[life->lo] = life;
  if (life->accesses.empty()) return;
  for (std::uint64_t page = life->lo / kGranule; page <= (life->hi - 1) / kGranule; ++page) {
    ended_[page].push_back(life);
  }
}

void Oracle::exhume(const LifePtr& life) {
  for (std::uint64_t page = life->lo / kGranule; page <= (life->hi - 1) / kGranule; ++page) {
    const auto found = ended_.find(page);
    if (found == ended_.end()) continue;
    auto& lives = found->second;
    lives.erase(std::remove(lives.begin(), lives.end(), life), lives.end());
    if (lives.empty()) ended_.erase(found);
  }
}

void Oracle::drop_dominated(const Life& life) {
  each_ended(life.lo, life.hi, [&](Life& older) {
    auto& old = older.accesses;
    old.erase(
        std::remove_if(old.begin(), old.end(),
                       [&](const Access& a) {
                         return std::any_of(life.accesses.begin(), life.accesses.end(), [&](const Access& x) {
                           return x.lo <= a.lo && x.hi >= a.hi && x.after->at(a.timeline) >= a.position;
                         });
                       }),
        old.end());
  });
}

void Oracle::report_owners(const Life& life, const Life& other) {
  report("two owners at once: " + describe(life) + " was handed out while " + describe(other) + " goes on");
}

void Oracle::begin(CUdeviceptr p, std::uint64_t bytes, const char* kind, std::uint64_t context_id,
                   std::shared_ptr<const VectorClock> freed) {
  if (p == 0 || bytes == 0) return;
  auto life = std::make_shared<Life>();
  life->number = next_number_++;
  life->lo = p;
  life->hi = p + bytes;
  life->kind = kind;
  life->context_id = context_id;
  life->freed = std::move(freed);
  std::vector<LifePtr> others;
  each_live(life->lo, life->hi, [&](const LifePtr& other) { others.push_back(other); });
  for (const LifePtr& other : others) {
    report_owners(*life, *other);
    live_.erase(other->lo);
  }
  // A program may map its own memory twice.
  if (std::strcmp(kind, "cuMemMap") != 0) {
    each_alias(life->lo, life->hi, [&](CUdeviceptr lo, CUdeviceptr hi) {
      each_live(lo, hi, [&](const LifePtr& other) { report_owners(*life, *other); });
    });
  }
  last_ended_.erase(p);
  live_[p] = std::move(life);
}

bool Oracle::end(CUdeviceptr p) {
  const auto found = live_.find(p);
  if (found == live_.end()) return false;
  const LifePtr life = found->second;
  live_.erase(found);
  if (!life->accesses.empty()) drop_dominated(*life);
  bury(life);
  return true;
}

std::uint64_t Oracle::context_of(CUdeviceptr p) const {
  const auto found = live_.find(p);
  return found != live_.end() ? found->second->context_id : 0;
}

VectorClock Oracle::freed_before(CUdeviceptr lo, CUdeviceptr hi) {
  VectorClock all;
  each_live(lo, hi, [&](const LifePtr& life) {
    if (life->freed != nullptr) all.join(*life->freed);
  });
  return all;
}

void Oracle::revive(CUdeviceptr p) {
  const auto found = last_ended_.find(p);
  if (found == last_ended_.end()) return;
  const LifePtr life = found->second;
  last_ended_.erase(found);
  exhume(life);
  live_[p] = life;
}

void Oracle::end_context(std::uint64_t context_id) {
  std::vector<CUdeviceptr> own;
  for (const auto& [p, life] : live_) {
    if (life->context_id == context_id) own.push_back(p);
  }
  for (const CUdeviceptr p : own) end(p);
}

void Oracle::judge(const Life& life, CUdeviceptr lo, CUdeviceptr hi, const VectorClock& after,
                   const std::string& story, const VectorClock& host) {
  judge_at(life, lo, hi, after, story, host);
  each_alias(lo, hi,
             [&](CUdeviceptr low, CUdeviceptr high) { judge_at(life, low, high, after, story, host); });
}

void Oracle::judge_at(const Life& life, CUdeviceptr lo, CUdeviceptr hi, const VectorClock& after,
                      const std::string& story, const VectorClock& host) {
  each_ended(lo, hi, [&](Life& older) {
    auto& old = older.accesses;
    old.erase(std::remove_if(old.begin(), old.end(),
                             [&](const Access& a) { return host.at(a.timeline) >= a.position; }),
              old.end());
    for (const Access& a : old) {
      if (a.lo >= hi || a.hi <= lo || after.at(a.timeline) >= a.position) continue;
      if (!told_.emplace(std::make_pair(older.number, life.number), true).second) continue;
      report(story + " of " + describe(life) + "\n      is not ordered after\n      " + *a.story + " of " +
             describe(older) + "\n      on bytes " + hex_span(std::max(lo, a.lo), std::min(hi, a.hi)));
    }
  });
}

void Oracle::note(Life& life, Access access) {
  auto& known = life.accesses;
  for (Access& a : known) {
    if (a.timeline == access.timeline && a.lo >= access.lo && a.hi <= access.hi) {
      a = std::move(access);
      return;
    }
  }
  if (known.size() >= kAccessesKept) {
    // The life is freed as a whole, so its bytes stand or fall together: widen instead of growing for ever.
    for (Access& a : known) {
      if (a.timeline != access.timeline) continue;
      access.lo = std::min(access.lo, a.lo);
      access.hi = std::max(access.hi, a.hi);
      a = std::move(access);
      return;
    }
  }
  known.push_back(std::move(access));
}

void Oracle::operation(const Stream& stream, std::uint64_t position, const VectorClock& after,
                       const Work& work, const VectorClock& host) {
  if (work.touches.empty()) return;
  std::shared_ptr<const std::string> story;
  std::shared_ptr<const VectorClock> kept;
  for (const Span& span : work.touches) {
    if (span.lo >= span.hi) continue;
    bool belongs = false;
    const auto tell = [&] {
      if (story != nullptr) return;
      story = std::make_shared<const std::string>(describe_operation(stream, position, work));
      kept = std::make_shared<const VectorClock>(after);
    };
    if (!mappings_.empty()) {
      tell();
      note_in_mappings(Access{stream.timeline, position, span.lo, span.hi, kept, story});
    }
    each_live(span.lo, span.hi, [&](const LifePtr& life) {
      belongs = true;
      const CUdeviceptr lo = std::max(span.lo, life->lo);
      const CUdeviceptr hi = std::min(span.hi, life->hi);
      tell();
      judge(*life, lo, hi, after, *story, host);
      note(*life, Access{stream.timeline, position, lo, hi, kept, story});
    });
    if (!belongs) ++strays_;
  }
}

void Oracle::host_touch(CUdeviceptr lo, CUdeviceptr hi, const VectorClock& host) {
  each_live(lo, hi, [&](const LifePtr& life) {
    judge(*life, std::max(lo, life->lo), std::min(hi, life->hi), host, "a touch by the host", host);
  });
}

void Oracle::mapping_begins(CUdeviceptr p, std::uint64_t bytes, CUmemGenericAllocationHandle chunk) {
  mappings_[p] = Mapping{p + bytes, chunk, {}};
  places_.emplace(chunk, p);
}

void Oracle::note_in_mappings(const Access& access) {
  each_mapping(access.lo, access.hi,
               [&](CUdeviceptr, Mapping& mapping) { mapping.newest[access.timeline] = access; });
}

void Oracle::report_unmapped(CUdeviceptr p, const Mapping& mapping, const Access& access,
                             const std::string& how) {
  const CUdeviceptr lo = std::max(p, access.lo);
  const CUdeviceptr hi = std::min(mapping.hi, access.hi);
  std::string lives;
  const auto name = [&](const Life& life) {
    lives += (lives.empty() ? " of " : " and of ") + describe(life);
  };
  each_live(lo, hi, [&](const LifePtr& life) { name(*life); });
  if (lives.empty()) each_ended(lo, hi, name);
  report("unmapped under work: " + how + " takes " + hex_span(p, mapping.hi) +
         " away\n      and nobody has seen the end of\n      " + *access.story + lives + "\n      on bytes " +
         hex_span(lo, hi));
}

void Oracle::memory_gone(CUdeviceptr lo, CUdeviceptr hi, const char* how) {
  std::vector<LifePtr> left;
  each_live(lo, hi, [&](const LifePtr& life) { left.push_back(life); });
  for (const LifePtr& life : left) {
    report(std::string(how) + " gave the memory " + hex_span(lo, hi) + " back to the device while " +
           describe(*life) + " goes on");
    live_.erase(life->lo);
  }
}

}  // namespace cupool::sim
