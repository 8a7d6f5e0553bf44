// See moments.hpp.
#include "see/moments.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <unordered_map>
#include <utility>

#include "see/chosen_moments.hpp"

namespace cupool::see {
namespace {

uint32_t bucket_of(uint64_t value) {
  return value == 0 ? 0 : static_cast<uint32_t>(std::bit_width(value) - 1);
}

class Maker {
 public:
  Maker(const Model& model, const Holders& holders, const Limits& limits,
        const std::function<void()>& progress)
      : model_(model), holders_(holders), limits_(limits), progress_(progress) {}

  Picture make() {
    out_.brief_calls = limits_.brief_calls;
    for (size_t most = limits_.moments;; most /= 2) {
      ChosenMoments chosen = choose_moments(model_, most);
      moments_ = std::move(chosen.events);
      out_.peaks = std::move(chosen.peaks);
      out_.peak = chosen.peak;
      if (sweep(most <= 64 ? ~size_t{0} : limits_.cells)) break;
    }
    for (const uint32_t event : moments_) {
      out_.times.push_back(time_of(model_, event));
      out_.events.push_back(uint64_t{event} + 1);
    }
    if (moments_.empty()) {
      out_.times.push_back(model_.first);
      out_.events.push_back(0);
    }
    // The last moment lasts until the trace ends; one more says so to everything that draws.
    out_.times.push_back(std::max(model_.last, out_.times.back()));
    out_.events.push_back(model_.order.size());
    finish_series();
    tables();
    histograms();
    map();
    return std::move(out_);
  }

 private:
  size_t moments() const { return out_.times.size(); }

  // ---- What happened between them.

  uint32_t group_of(uint32_t number) {
    const Life& life = model_.lives[number];
    const uint64_t key = uint64_t{holders_.of(life)} << 16 | uint64_t{life.kind} << 8 | life.device;
    const auto [at, is_new] = group_index_.try_emplace(key, static_cast<uint32_t>(out_.groups.size()));
    if (is_new) out_.groups.push_back({holders_.of(life), life.kind, life.device});
    return at->second;
  }

  // False: there are too many cells.
  bool sweep(size_t most_cells) {
    out_.cells.clear();
    out_.live.clear();
    if (groups_of_lives_.empty()) {
      groups_of_lives_.resize(model_.lives.size());
      for (size_t i = 0; i < groups_of_lives_.size(); ++i)
        groups_of_lives_[i] = group_of(static_cast<uint32_t>(i));
    }
    std::vector<uint32_t> cell_of(out_.groups.size(), kNone);
    std::map<std::pair<uint8_t, uint8_t>, size_t> series;
    for (const Group& group : out_.groups) {
      const auto [at, is_new] = series.try_emplace({group.device, group.kind}, 0);
      if (!is_new) continue;
      at->second = out_.live.size();
      out_.live.push_back({group.device, group.kind, {}});
    }
    std::vector<size_t> series_of;
    for (const Group& group : out_.groups) series_of.push_back(series[{group.device, group.kind}]);
    std::vector<uint64_t> now(out_.live.size());
    size_t begin = 0;
    for (uint32_t moment = 0; moment < moments_.size(); ++moment) {
      const size_t first = out_.cells.size();
      for (size_t i = begin; i <= moments_[moment]; ++i) {
        const uint32_t number = model_.order[i];
        const Life& life = model_.lives[number & ~kIsFree];
        const uint32_t group = groups_of_lives_[number & ~kIsFree];
        if (cell_of[group] == kNone) {
          cell_of[group] = static_cast<uint32_t>(out_.cells.size());
          out_.cells.push_back({moment, group, 0, 0, 0, 0, 0});
        }
        Cell& cell = out_.cells[cell_of[group]];
        const auto bytes = static_cast<int64_t>(life.given);
        if ((number & kIsFree) != 0) {
          cell.bytes -= bytes;
          --cell.blocks;
          now[series_of[group]] -= life.given;
          continue;
        }
        cell.bytes += bytes;
        ++cell.blocks;
        now[series_of[group]] += life.given;
        if (life.is_before) continue;
        ++cell.calls;
        cell.asked += life.given;
        if (life.call_end != kNone && life.call_end - life.call_begin <= limits_.brief_calls) ++cell.brief;
      }
      begin = size_t{moments_[moment]} + 1;
      for (size_t i = first; i < out_.cells.size(); ++i) cell_of[out_.cells[i].group] = kNone;
      for (size_t i = 0; i < now.size(); ++i) out_.live[i].bytes.push_back(now[i]);
      if (out_.cells.size() > most_cells) return false;
      if (moment % 256 == 0) progress_();
    }
    return true;
  }

  void finish_series() {
    for (Series& one : out_.live) {
      if (one.bytes.empty()) one.bytes.push_back(0);
      one.bytes.push_back(one.bytes.back());
    }
    out_.reserved.assign(model_.devices, std::vector<uint64_t>(moments()));
    out_.used.assign(model_.devices, std::vector<uint64_t>(moments()));
    out_.totals.assign(model_.devices, 0);
    for (uint64_t device = 0; device < model_.devices; ++device) {
      size_t at = 0;
      uint64_t now = 0;
      size_t says = 0;
      uint64_t used = 0;
      for (size_t moment = 0; moment < moments(); ++moment) {
        for (; at < model_.reserved.size() && model_.reserved[at].time <= out_.times[moment]; ++at) {
          if (model_.reserved[at].device != device) continue;
          now = model_.reserved[at].bytes;
        }
        out_.reserved[device][moment] = now;
        for (; says < model_.driver_says.size() && model_.driver_says[says].time <= out_.times[moment];
             ++says) {
          if (model_.driver_says[says].device != device) continue;
          used = model_.driver_says[says].used;
          out_.totals[device] = model_.driver_says[says].total;
        }
        out_.used[device][moment] = used;
      }
    }
  }

  // The first moment that is not before `time`.
  uint32_t moment_at(uint64_t time) const {
    return static_cast<uint32_t>(
        std::min<ptrdiff_t>(std::lower_bound(out_.times.begin(), out_.times.end(), time) - out_.times.begin(),
                            static_cast<ptrdiff_t>(moments()) - 1));
  }

  // ---- Calls of the driver, and waits.

  void tables() {
    std::map<std::tuple<std::string, std::string, uint32_t>, uint32_t> rows;
    std::map<std::pair<uint32_t, uint32_t>, CallCell> cells;
    const auto row_of = [&](std::string what, std::string why, uint32_t holder) {
      const auto [at, is_new] =
          rows.try_emplace({what, why, holder}, static_cast<uint32_t>(out_.call_rows.size()));
      if (is_new) out_.call_rows.push_back({std::move(what), std::move(why), holder});
      return at->second;
    };
    const auto add = [&](uint64_t time, uint32_t row, uint64_t ns) {
      const uint32_t moment = moment_at(time);
      CallCell& cell = cells.try_emplace({moment, row}, CallCell{moment, row, 0, 0, 0}).first->second;
      ++cell.count;
      cell.ns += ns;
      cell.most_ns = std::max(cell.most_ns, ns);
    };
    for (const Wait& wait : model_.waits)
      add(wait.time,
          row_of(model_.call_name(wait.call), model_.cause_name(wait.cause),
                 holders_.of(wait.stack, wait.call)),
          wait.ns);
    for (const Dealing& one : model_.dealings)
      add(one.time, row_of("segment " + model_.dealing_name(one.what), model_.why_name(one.why), kNone),
          one.ns);
    for (const auto& [at, cell] : cells) out_.call_cells.push_back(cell);
    thin(
        out_.call_cells, limits_.call_cells,
        [](CallCell& to, const CallCell& from) {
          to.count += from.count;
          to.ns += from.ns;
          to.most_ns = std::max(to.most_ns, from.most_ns);
        },
        [](const CallCell& cell) { return cell.row; });
  }

  // Puts cells of neighbouring moments together until there are not too many: into the last of so many.
  template <typename C, typename Add, typename Key>
  void thin(std::vector<C>& cells, size_t most, Add&& add, Key&& key) const {
    for (uint32_t step = 2; cells.size() > most && step < 2 * moments(); step *= 2) {
      std::vector<C> fewer;
      std::unordered_map<uint32_t, size_t> at;
      uint32_t last = kNone;
      for (const C& cell : cells) {
        const auto moment =
            static_cast<uint32_t>(std::min<size_t>(cell.moment / step * step + step - 1, moments() - 1));
        if (moment != last) at.clear();
        last = moment;
        const auto [found, is_new] = at.try_emplace(key(cell), fewer.size());
        if (is_new) {
          fewer.push_back(cell);
          fewer.back().moment = moment;
        } else {
          add(fewer[found->second], cell);
        }
      }
      cells.swap(fewer);
    }
  }

  void histograms() {
    std::array<HistogramCell, 65> sizes{};
    std::array<HistogramCell, 65> lifetimes{};
    const auto flush = [](uint32_t moment, std::array<HistogramCell, 65>& from,
                          std::vector<HistogramCell>* to) {
      for (uint32_t bucket = 0; bucket < from.size(); ++bucket) {
        if (from[bucket].count != 0) to->push_back({moment, bucket, from[bucket].count, from[bucket].bytes});
        from[bucket] = {};
      }
    };
    size_t begin = 0;
    for (uint32_t moment = 0; moment < moments_.size(); ++moment) {
      for (size_t i = begin; i <= moments_[moment]; ++i) {
        const uint32_t number = model_.order[i];
        if ((number & kIsFree) != 0) continue;
        const Life& life = model_.lives[number];
        if (life.is_before) continue;
        HistogramCell& size = sizes[bucket_of(life.asked)];
        HistogramCell& lifetime =
            lifetimes[life.end == kNever ? kStillHeld : std::min(bucket_of(life.end - life.begin), 63u)];
        for (HistogramCell* const one : {&size, &lifetime}) {
          ++one->count;
          one->bytes += life.asked;
        }
      }
      begin = size_t{moments_[moment]} + 1;
      flush(moment, sizes, &out_.sizes);
      flush(moment, lifetimes, &out_.lifetimes);
    }
    const auto add = [](HistogramCell& to, const HistogramCell& from) {
      to.count += from.count;
      to.bytes += from.bytes;
    };
    const auto key = [](const HistogramCell& cell) { return cell.bucket; };
    thin(out_.sizes, limits_.histogram_cells, add, key);
    thin(out_.lifetimes, limits_.histogram_cells, add, key);
  }

  // ---- The map of segments.

  void map() {
    // As many moments as the blocks that are there at one of them allow.
    std::vector<uint32_t> first(model_.lives.size());
    std::vector<uint32_t> last(model_.lives.size(), static_cast<uint32_t>(moments()));
    uint32_t moment = 0;
    for (size_t i = 0; i < model_.order.size(); ++i) {
      while (moment < moments_.size() && moments_[moment] < i) ++moment;
      const uint32_t number = model_.order[i];
      // (An event at the moment itself has happened then.)
      ((number & kIsFree) != 0 ? last : first)[number & ~kIsFree] = moment;
    }
    std::array<size_t, 33> seen{};
    for (size_t i = 0; i < first.size(); ++i) {
      if (!is_on_map(model_.lives[i])) continue;
      for (unsigned shift = 0; shift < seen.size(); ++shift) {
        if (!is_seen(first[i], last[i], shift)) break;
        ++seen[shift];
      }
    }
    unsigned shift = 0;
    while (shift + 1 < seen.size() && seen[shift] > limits_.blocks && (size_t{1} << (shift + 1)) < moments())
      ++shift;
    for (size_t i = 0; i < moments(); i += size_t{1} << shift)
      out_.map_moments.push_back(static_cast<uint32_t>(i));
    for (const uint32_t one : out_.peaks) out_.map_moments.push_back(one);
    out_.map_moments.push_back(out_.peak);
    out_.map_moments.push_back(static_cast<uint32_t>(moments() - 1));
    std::sort(out_.map_moments.begin(), out_.map_moments.end());
    out_.map_moments.erase(std::unique(out_.map_moments.begin(), out_.map_moments.end()),
                           out_.map_moments.end());
    const auto map_moment = [&](uint32_t at) {
      return static_cast<uint32_t>(std::lower_bound(out_.map_moments.begin(), out_.map_moments.end(), at) -
                                   out_.map_moments.begin());
    };
    // Too many at one moment already: the smallest are left out.
    std::vector<uint32_t> shown;
    for (uint32_t i = 0; i < first.size(); ++i) {
      if (is_on_map(model_.lives[i]) && map_moment(first[i]) < map_moment(last[i])) shown.push_back(i);
    }
    if (shown.size() > 2 * limits_.blocks) {
      std::vector<uint64_t> bytes;
      bytes.reserve(shown.size());
      for (const uint32_t one : shown) bytes.push_back(model_.lives[one].given);
      std::nth_element(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(limits_.blocks), bytes.end(),
                       std::greater<>());
      out_.least_block = bytes[limits_.blocks] + 1;
      std::erase_if(shown, [&](uint32_t one) { return model_.lives[one].given < out_.least_block; });
    }
    regions(map_moment);
    for (const uint32_t one : shown) {
      const Life& life = model_.lives[one];
      const uint32_t region = region_of(life, map_moment(first[one]), map_moment(last[one]));
      if (region == kNone) continue;
      out_.blocks.push_back({region, groups_of_lives_[one], life.address - out_.regions[region].address,
                             life.given, map_moment(first[one]), map_moment(last[one]), life.begin});
    }
    std::sort(out_.blocks.begin(), out_.blocks.end(), [](const MapBlock& a, const MapBlock& b) {
      return std::tie(a.from, a.region, a.offset) < std::tie(b.from, b.region, b.offset);
    });
  }

  bool is_on_map(const Life& life) const { return model_.is_pools(life); }
  static bool is_seen(uint32_t first, uint32_t last, unsigned shift) {
    const uint64_t step = uint64_t{1} << shift;
    return (first + step - 1) / step * step < last;
  }

  template <typename F>
  void regions(F&& map_moment) {
    for (const Segment& one : model_.segments) {
      const uint32_t from = map_moment(moment_at(one.begin));
      const uint32_t to =
          one.end == kNever ? static_cast<uint32_t>(out_.map_moments.size()) : map_moment(moment_at(one.end));
      if (from >= to) continue;
      region_index_[one.address].push_back(static_cast<uint32_t>(out_.regions.size()));
      out_.regions.push_back({one.address, one.bytes, one.device, true, from, to});
    }
  }

  // One that is made if none is known.
  uint32_t region_of(const Life& life, uint32_t from, uint32_t to) {
    auto at = region_index_.upper_bound(life.address);
    for (int tries = 0; at != region_index_.begin() && tries < 4; ++tries) {
      --at;
      for (const uint32_t number : at->second) {
        Region& region = out_.regions[number];
        if (life.address - region.address >= region.bytes || region.device != life.device) continue;
        if (region.is_known && (from >= region.to || to <= region.from)) continue;
        if (!region.is_known) {
          region.from = std::min(region.from, from);
          region.to = std::max(region.to, to);
        }
        return number;
      }
    }
    constexpr uint64_t kStep = uint64_t{2} << 20;
    const uint64_t begin = life.address & ~(kStep - 1);
    const uint64_t bytes = ((life.address - begin + life.given) | (kStep - 1)) + 1;
    region_index_[begin].push_back(static_cast<uint32_t>(out_.regions.size()));
    out_.regions.push_back({begin, bytes, life.device, false, from, to});
    return static_cast<uint32_t>(out_.regions.size() - 1);
  }

  const Model& model_;
  const Holders& holders_;
  const Limits& limits_;
  const std::function<void()>& progress_;
  Picture out_;
  std::vector<uint32_t> moments_;  // places in Model::order
  std::vector<uint32_t> groups_of_lives_;
  std::unordered_map<uint64_t, uint32_t> group_index_;
  std::map<uint64_t, std::vector<uint32_t>> region_index_;
};

}  // namespace

Picture make_picture(const Model& model, const Holders& holders, const Limits& limits,
                     const std::function<void()>& progress) {
  return Maker(model, holders, limits, progress).make();
}

}  // namespace cupool::see
