// See chosen_moments.hpp.
#include "see/chosen_moments.hpp"

#include <algorithm>

namespace cupool::see {

uint64_t time_of(const Model& model, size_t event) {
  const uint32_t number = model.order[event];
  const Life& life = model.lives[number & ~kIsFree];
  const uint64_t time = (number & kIsFree) != 0 ? life.end : life.begin;
  return std::clamp(time, model.first, std::max(model.first, model.last));
}

namespace {

// Of each stretch the least and the most; and of each device the most of all.
ChosenMoments find_extremes(const Model& model, const std::vector<uint32_t>& edges) {
  ChosenMoments out;
  std::vector<uint32_t>& moments = out.events;
  const size_t events = model.order.size();
  std::vector<uint64_t> live(model.devices);
  std::vector<uint64_t> most(model.devices);
  std::vector<uint32_t> at_most(model.devices);
  uint64_t total = 0;
  uint64_t highest = 0;
  uint32_t at_highest = 0;
  size_t edge = 0;
  uint64_t low = 0, high = 0;
  uint32_t at_low = 0, at_high = 0;
  const auto end_stretch = [&] {
    moments.push_back(std::min(at_low, at_high));
    if (at_low != at_high) moments.push_back(std::max(at_low, at_high));
  };
  for (size_t i = 0; i < events; ++i) {
    const uint32_t number = model.order[i];
    const Life& life = model.lives[number & ~kIsFree];
    if (!model.is_hosts(life)) {
      uint64_t& here = live[life.device];
      if ((number & kIsFree) != 0) {
        here -= life.given;
        total -= life.given;
      } else {
        here += life.given;
        total += life.given;
      }
      if (here > most[life.device]) {
        most[life.device] = here;
        at_most[life.device] = static_cast<uint32_t>(i);
      }
    }
    const auto now = static_cast<uint32_t>(i);
    if (edge < edges.size() && edges[edge] == i) {
      if (i != 0) end_stretch();
      ++edge;
      low = high = total;
      at_low = at_high = now;
    } else {
      if (total < low) {
        low = total;
        at_low = now;
      }
      if (total > high) {
        high = total;
        at_high = now;
      }
    }
    if (total > highest) {
      highest = total;
      at_highest = now;
    }
  }
  if (events != 0) {
    end_stretch();
    for (const uint32_t one : at_most) moments.push_back(one);
    moments.push_back(at_highest);
    moments.push_back(static_cast<uint32_t>(events - 1));
  }
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  const auto place = [&](uint32_t event) {
    return static_cast<uint32_t>(std::lower_bound(moments.begin(), moments.end(), event) - moments.begin());
  };
  for (const uint32_t one : at_most) out.peaks.push_back(place(one));
  out.peak = place(at_highest);
  return out;
}

}  // namespace

ChosenMoments choose_moments(const Model& model, size_t most) {
  const size_t events = model.order.size();
  std::vector<uint32_t> edges;
  if (events <= most) {
    for (size_t i = 0; i < events; ++i) edges.push_back(static_cast<uint32_t>(i));
  } else {
    // Half of the stretches have the same number of events, a quarter the same time.
    const size_t even = most / 4;
    for (size_t i = 0; i < even; ++i) edges.push_back(static_cast<uint32_t>(i * events / even));
    const size_t timed = most / 8;
    size_t at = 0;
    for (size_t i = 0; i < timed; ++i) {
      const uint64_t time =
          model.first + static_cast<uint64_t>(static_cast<double>(model.last - model.first) *
                                              static_cast<double>(i) / static_cast<double>(timed));
      // (Times are nearly in order: of those that are not, the place does not matter.)
      size_t low = at;
      size_t high = events;
      while (low < high) {
        const size_t middle = (low + high) / 2;
        if (time_of(model, middle) < time) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      at = low;
      if (at < events) edges.push_back(static_cast<uint32_t>(at));
    }
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  }
  return find_extremes(model, edges);
}

}  // namespace cupool::see
