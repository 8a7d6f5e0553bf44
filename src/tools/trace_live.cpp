// See trace_live.hpp.
#include "tools/trace_live.hpp"

#include <algorithm>
#include <cmath>

#include "trace/live_set.hpp"

namespace cupool::tools {

namespace {

constexpr uint64_t kMostDevice = 1023;

}  // namespace

TraceLive::Fields TraceLive::fields_of(std::string_view name) const {
  const size_t place = about_.find_event(name);
  if (place == about_.events.size()) return {-1, -1, -1, -1, -1, -1, -1, -1, -1};
  const TraceEvent& event = about_.events[place];
  return {event.find("address"), event.find("asked"),  event.find("more"),
          event.find("context"), event.find("device"), event.find("kind"),
          event.find("stack"),   event.find("sample"), event.find("call")};
}

TraceLive::TraceLive(const TraceAbout& about)
    : about_(about),
      allocated_(about.find_event("allocated")),
      freed_(about.find_event("freed")),
      live_(about.find_event("live")),
      context_ended_(about.find_event("context_ended")),
      of_allocated_(fields_of("allocated")),
      of_freed_(fields_of("freed")),
      of_live_(fields_of("live")),
      of_context_ended_(fields_of("context_ended")) {}

void TraceLive::add(uint8_t space, uint64_t address, const Block& now) {
  Block& block = blocks_[space][address];
  if (block.time > now.time) return;
  if (block.is_live) drop(block, now.time);
  block = now;
  Sum& sum = sums_[{now.device, now.kind}];
  ++sum.blocks;
  sum.asked += now.asked;
  sum.given += now.given();
  sum.most = std::max(sum.most, sum.given);
  if (!is_host_memory(now.kind)) device_bytes_ += now.given();
  if (device_bytes_ > most_device_bytes_) {
    most_device_bytes_ = device_bytes_;
    most_after_ = seen_;
  }
  // Those that are gone by now, or stand there twice, are taken out when they are the most of them.
  Places& places = contexts_[now.context];
  ++places.live;
  places.all.emplace_back(space, address);
  if (places.all.size() < 64 || places.all.size() < 4 * places.live) return;
  const auto is_gone = [&](const std::pair<uint8_t, uint64_t>& place) {
    const auto found = blocks_[place.first].find(place.second);
    return found == blocks_[place.first].end() || !found->second.is_live ||
           found->second.context != now.context;
  };
  std::sort(places.all.begin(), places.all.end());
  places.all.erase(std::unique(places.all.begin(), places.all.end()), places.all.end());
  places.all.erase(std::remove_if(places.all.begin(), places.all.end(), is_gone), places.all.end());
}

void TraceLive::drop(Block& block, uint64_t time) {
  if (block.time > time) return;
  if (block.is_live) {
    Sum& sum = sums_[{block.device, block.kind}];
    --sum.blocks;
    sum.asked -= block.asked;
    sum.given -= block.given();
    if (!is_host_memory(block.kind)) device_bytes_ -= block.given();
    --contexts_[block.context].live;
  }
  block.is_live = false;
  block.time = time;
}

void TraceLive::see(const Happened& happened) {
  ++seen_;
  if (happened.event == allocated_ || happened.event == live_) {
    const Fields& fields = happened.event == live_ ? of_live_ : of_allocated_;
    const uint64_t kind = value(happened, fields.kind);
    Block now;
    now.time = happened.time;
    now.asked = value(happened, fields.asked);
    now.more = value(happened, fields.more);
    now.context = value(happened, fields.context);
    now.stack = value(happened, fields.stack);
    now.sample = value(happened, fields.sample);
    now.thread = happened.thread;
    now.call = static_cast<uint32_t>(std::min<uint64_t>(value(happened, fields.call), ~uint32_t{0}));
    now.device = static_cast<uint16_t>(std::min(value(happened, fields.device), kMostDevice));
    now.kind = static_cast<uint8_t>(std::min<uint64_t>(kind, 255));
    now.is_live = true;
    add(trace::space_of(kind), value(happened, fields.address), now);
  } else if (happened.event == freed_) {
    auto& all = blocks_[trace::space_of(value(happened, of_freed_.kind))];
    const auto found = all.find(value(happened, of_freed_.address));
    if (found == all.end()) return;
    drop(found->second, happened.time);
    if (!found->second.is_live) all.erase(found);
  } else if (happened.event == context_ended_) {
    end_context(value(happened, of_context_ended_.context), happened.time);
  }
}

void TraceLive::end_context(uint64_t context, uint64_t time) {
  const auto places = contexts_.find(context);
  if (places == contexts_.end()) return;
  std::vector<std::pair<uint8_t, uint64_t>> kept;
  for (const auto& [space, address] : places->second.all) {
    const auto found = blocks_[space].find(address);
    if (found == blocks_[space].end() || !found->second.is_live || found->second.context != context) continue;
    if (trace::ends_with_context(found->second.kind)) drop(found->second, time);
    if (found->second.is_live) {
      kept.emplace_back(space, address);
    } else {
      blocks_[space].erase(found);
    }
  }
  if (kept.empty())
    contexts_.erase(places);
  else
    places->second.all = std::move(kept);
}

double TraceLive::Block::weight() const {
  if (sample == 0 || stack == 0 || asked == 0) return 1;
  return 1 / -std::expm1(-static_cast<double>(asked) / static_cast<double>(sample));
}

TraceLive::Sum TraceLive::counted(uint64_t device) const {
  Sum all;
  for (const trace::Kind kind : {trace::Kind::kPool, trace::Kind::kWhole, trace::Kind::kNative}) {
    const auto found = sums_.find({device, static_cast<uint64_t>(kind)});
    if (found == sums_.end()) continue;
    all.blocks += found->second.blocks;
    all.asked += found->second.asked;
    all.given += found->second.given;
  }
  return all;
}

}  // namespace cupool::tools
