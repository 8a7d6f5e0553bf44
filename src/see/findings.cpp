// See findings.hpp.
#include "see/findings.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "tools/holders.hpp"

namespace cupool::see {
namespace {

std::string share_of(uint64_t part, uint64_t whole) {
  if (part == 0 || whole == 0) return "0 %";
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  if (percent < 0.1) return "less than 0.1 %";
  if (part < whole && percent > 99.9) return "more than 99.9 %";
  // Only all of it is 100 %.
  if (part < whole && percent >= 99.5) return make_text("{:.1f} %", std::floor(percent * 10) / 10);
  return percent < 10 ? make_text("{:.1f} %", percent) : make_text("{:.0f} %", percent);
}

std::string counted(uint64_t count, const char* one, const char* many) {
  return print_count(count) + " " + (count == 1 ? one : many);
}

std::string was(uint64_t count) { return count == 1 ? "was" : "were"; }

template <typename Field>
uint32_t most_by(const std::vector<HolderSums>& sums, Field field) {
  uint32_t best = kNone;
  for (uint32_t i = 0; i < sums.size(); ++i) {
    if (sums[i].*field != 0 && (best == kNone || sums[i].*field > sums[best].*field)) best = i;
  }
  return best;
}

class Findings {
 public:
  Findings(const Model& model, const Holders& holders, const Picture& picture)
      : model_(model), holders_(holders), picture_(picture), sums_(sums_of_faces(model, holders, picture)) {}

  std::vector<std::string> all() {
    incomplete();
    failures();
    peak();
    waits();
    phases();
    brief();
    driver();
    left();
    stacks();
    return std::move(out_);
  }

 private:
  std::string quoted(uint32_t face) const { return "`" + holders_.table()[face].text() + "`"; }
  std::string at(uint64_t time) const {
    return tools::print_moment(model_.since_began(time)) + " after the trace began";
  }

  // Else a holder is no more than the function of CUDA.
  bool has_stacks() const { return model_.stackless != model_.lives.size(); }

  void incomplete() {
    if (std::string missing = model_.reader().missing_end(); !missing.empty()) {
      missing[0] = static_cast<char>(missing[0] - 'a' + 'A');
      out_.push_back(missing + ".");
    }
    if (model_.lost != 0)
      out_.push_back(
          counted(model_.lost, "event is", "events are") +
          " missing from the trace, which found no room: sums may be too low, and memory may seem held "
          "whose free is missing.");
    if (model_.unknown_frees != 0)
      out_.push_back(counted(model_.unknown_frees, "free is", "frees are") +
                     " of memory whose allocation is not in the trace.");
  }

  void failures() {
    std::vector<const Failure*> refused;
    for (const Failure& one : model_.failures) {
      if (!one.is_final) refused.push_back(&one);
    }
    if (refused.empty()) return;
    const Failure& first = *refused.front();
    std::string text = counted(refused.size(), "allocation", "allocations") +
                       " failed; the first asked for " + std::string(print_bytes(first.asked)) +
                       " of device " + make_text("{}, ", first.device) + at(first.time) + ", by " +
                       quoted(holders_.face(holders_.of(first.stack, first.call))) + ".";
    out_.push_back(std::move(text));
  }

  void peak() {
    uint64_t held = 0;
    uint64_t blocks = 0;
    for (const HolderSums& one : sums_) {
      held += one.held_bytes;
      blocks += one.held_blocks;
    }
    if (held == 0) return;
    const std::string most = std::string(print_bytes(held));
    std::string text = "The program held at most " + most + " of device memory at once, in " +
                       counted(blocks, "block", "blocks") + ", " + at(picture_.times[picture_.peak]) + ".";
    for (uint64_t device = 0; device < model_.devices; ++device) {
      const uint64_t reserved = picture_.reserved[device][picture_.peak];
      uint64_t live = 0;
      for (const Series& one : picture_.live) {
        const bool is_pools = model_.kind_name(one.kind) == "pool" || model_.kind_name(one.kind) == "whole" ||
                              model_.kind_name(one.kind) == "native";
        if (one.device == device && is_pools) live += one.bytes[picture_.peak];
      }
      if (live == 0 || reserved < live) continue;
      text += " The pool had taken " + std::string(print_bytes(reserved)) + " of device " +
              make_text("{}", device) + " by then, of which " + std::string(print_bytes(reserved - live)) +
              " (" + share_of(reserved - live, reserved) + ") " + "held nothing.";
    }
    out_.push_back(std::move(text));
    if (!has_stacks()) return;
    const uint32_t best = most_by(sums_, &HolderSums::held_bytes);
    out_.push_back("Of that, " + share_of(sums_[best].held_bytes, held) + " (" +
                   std::string(print_bytes(sums_[best].held_bytes)) + " in " +
                   counted(sums_[best].held_blocks, "block", "blocks") + ") had been allocated by " +
                   quoted(best) + ", more than by any other.");
  }

  // How long at least one thread was in a call of these waits.
  static uint64_t together(std::vector<std::pair<uint64_t, uint64_t>> spans) {
    std::sort(spans.begin(), spans.end());
    uint64_t sum = 0;
    uint64_t until = 0;
    for (const auto& [begin, end] : spans) {
      if (end <= until) continue;
      sum += end - std::max(begin, until);
      until = end;
    }
    return sum;
  }

  void waits() {
    if (model_.waits.empty() || model_.ns() == 0) return;
    std::vector<std::pair<uint64_t, uint64_t>> spans;
    std::map<std::pair<std::string, uint32_t>, std::pair<uint64_t, uint64_t>> by;
    for (const Wait& one : model_.waits) {
      spans.emplace_back(one.time - one.ns, one.time);
      auto& [count, ns] = by[{model_.call_name(one.call), holders_.face(holders_.of(one.stack, one.call))}];
      ++count;
      ns += one.ns;
    }
    const uint64_t ns = together(std::move(spans));
    std::string text = "During " + share_of(ns, model_.ns()) + " of the " + print_seconds(model_.ns()) +
                       " at least one thread was in a call in which the host waits, or which took long.";
    const auto most = std::max_element(
        by.begin(), by.end(), [](const auto& a, const auto& b) { return a.second.second < b.second.second; });
    const bool has_stack = holders_.table()[most->first.second].text() != most->first.first;
    text += " Most of it went to " + most->first.first +
            (has_stack ? " in " + quoted(most->first.second) : std::string()) + ": " +
            counted(most->second.first, "call", "calls") + ", " + print_seconds(most->second.second) + ".";
    out_.push_back(std::move(text));
  }

  // What a phase does each time, of those that end.
  void phases() {
    struct Sum {
      uint64_t runs = 0;
      uint64_t ns = 0;
      uint64_t calls = 0;
      uint64_t waited = 0;
    };
    std::vector<Sum> sums(model_.phase_names.size());
    std::map<uint16_t, std::vector<uint64_t>> begins;  // of allocations, by thread
    std::map<uint16_t, std::vector<const Wait*>> waited;
    bool is_any = false;
    for (const Phase& phase : model_.phases) is_any |= phase.end != kNever;
    if (!is_any) return;
    for (const Life& life : model_.lives) begins[life.thread].push_back(life.begin);
    for (const Wait& one : model_.waits) waited[one.thread].push_back(&one);
    for (auto& [thread, times] : begins) std::sort(times.begin(), times.end());
    for (const Phase& phase : model_.phases) {
      if (phase.end == kNever || phase.end < phase.begin) continue;
      Sum& sum = sums[phase.name];
      ++sum.runs;
      sum.ns += phase.end - phase.begin;
      const std::vector<uint64_t>& times = begins[phase.thread];
      sum.calls += static_cast<uint64_t>(std::lower_bound(times.begin(), times.end(), phase.end) -
                                         std::lower_bound(times.begin(), times.end(), phase.begin));
      const std::vector<const Wait*>& waits = waited[phase.thread];
      auto at = std::lower_bound(waits.begin(), waits.end(), phase.begin,
                                 [](const Wait* one, uint64_t time) { return one->time < time; });
      std::vector<std::pair<uint64_t, uint64_t>> spans;
      for (; at != waits.end() && (*at)->time <= phase.end; ++at)
        spans.emplace_back(std::max(phase.begin, (*at)->time - (*at)->ns), (*at)->time);
      sum.waited += together(std::move(spans));
    }
    std::vector<uint32_t> by_time;
    for (uint32_t i = 0; i < sums.size(); ++i) {
      if (sums[i].runs > 1 && sums[i].calls != 0) by_time.push_back(i);
    }
    std::stable_sort(by_time.begin(), by_time.end(),
                     [&](uint32_t a, uint32_t b) { return sums[a].ns > sums[b].ns; });
    constexpr size_t kMost = 3;
    for (size_t i = 0; i < std::min(kMost, by_time.size()); ++i) {
      const Sum& sum = sums[by_time[i]];
      const double each = static_cast<double>(sum.calls) / static_cast<double>(sum.runs);
      std::string text =
          "The phase `" + model_.phase_names[by_time[i]] + "` ran " + print_count(sum.runs) + " times, " +
          print_seconds(sum.ns / sum.runs) + " on average, with " +
          (each < 100 ? make_text("{:.1f}", each) : print_count(static_cast<uint64_t>(std::llround(each)))) +
          " allocations each time on its thread";
      text += sum.waited == 0 ? "." : "; " + share_of(sum.waited, sum.ns) + " of it were host waits.";
      out_.push_back(std::move(text));
    }
  }

  void brief() {
    uint64_t calls = 0;
    uint64_t brief = 0;
    for (const HolderSums& one : sums_) {
      calls += one.calls;
      brief += one.brief;
    }
    if (brief == 0) return;
    std::string text = share_of(brief, calls) + " of the " + counted(calls, "allocation", "allocations") +
                       " of device memory ended before " + print_count(picture_.brief_calls) +
                       " others had followed";
    const uint32_t best = most_by(sums_, &HolderSums::brief);
    if (has_stacks())
      text += "; " + share_of(sums_[best].brief, brief) + " of these came from " + quoted(best);
    out_.push_back(text + ".");
  }

  void driver() {
    std::map<std::string, std::pair<uint64_t, uint64_t>> by;
    for (const Dealing& one : model_.dealings) {
      auto& [count, ns] = by[model_.dealing_name(one.what)];
      ++count;
      ns += one.ns;
    }
    const auto& [taken, taken_ns] = by["taken"];
    const auto& [given, given_ns] = by["given back"];
    const auto& [refused, refused_ns] = by["refused"];
    if (taken + given + refused == 0) return;
    std::string text = "The pool took memory from the driver " + counted(taken, "time", "times") + " in " +
                       print_seconds(taken_ns);
    text += given == 0 ? " and gave none back."
                       : " and gave some back " + counted(given, "time", "times") + " in " +
                             print_seconds(given_ns) + ".";
    if (refused != 0) text += " It was refused " + counted(refused, "time", "times") + ".";
    out_.push_back(std::move(text));
  }

  void left() {
    uint64_t bytes = 0;
    uint64_t blocks = 0;
    for (const HolderSums& one : sums_) {
      bytes += one.left_bytes;
      blocks += one.left_blocks;
    }
    if (blocks == 0) return;
    const uint32_t best = most_by(sums_, &HolderSums::left_bytes);
    std::string text = counted(blocks, "block", "blocks") + " of device memory with " +
                       std::string(print_bytes(bytes)) + " " + was(blocks) +
                       " still held when the trace ended";
    if (best != kNone && has_stacks())
      text += "; " + share_of(sums_[best].left_bytes, bytes) + " of that from " + quoted(best);
    out_.push_back(text + ".");
  }

  void stacks() {
    if (model_.lives.empty()) return;
    if (!has_stacks()) {
      out_.push_back(
          "The trace has no call stacks: memory is told apart by the function of CUDA that was called.");
    } else if (model_.sampled != 0) {
      out_.push_back("Call stacks were taken of a sample, one in " +
                     std::string(print_bytes(model_.sample_bytes)) + "; the other " +
                     counted(model_.stackless, "allocation is", "allocations are") +
                     " told apart by the function of CUDA that was called.");
    }
  }

  const Model& model_;
  const Holders& holders_;
  const Picture& picture_;
  std::vector<HolderSums> sums_;
  std::vector<std::string> out_;
};

}  // namespace

std::string print_seconds(uint64_t ns) {
  const double seconds = static_cast<double>(ns) * 1e-9;
  if (ns < 1000) return make_text("{} ns", ns);
  if (ns < 1'000'000) return make_text("{:.1f} µs", seconds * 1e6);
  if (ns < 1'000'000'000) return make_text("{:.1f} ms", seconds * 1e3);
  return seconds < 100 ? make_text("{:.2f} s", seconds) : make_text("{:.0f} s", seconds);
}

std::string print_count(uint64_t count) {
  std::string out = make_text("{}", count);
  for (auto at = static_cast<ptrdiff_t>(out.size()) - 3; at > 0; at -= 3)
    out.insert(static_cast<size_t>(at), ",");
  return out;
}

std::vector<HolderSums> sums_of(const Model& model, const Holders& holders, const Picture& picture) {
  std::vector<HolderSums> sums(holders.size());
  std::vector<bool> is_device(picture.groups.size());
  for (size_t i = 0; i < picture.groups.size(); ++i) {
    Life life;
    life.kind = picture.groups[i].kind;
    is_device[i] = !model.is_hosts(life);
  }
  for (const Cell& cell : picture.cells) {
    if (!is_device[cell.group]) continue;
    HolderSums& sum = sums[picture.groups[cell.group].holder];
    sum.calls += cell.calls;
    sum.bytes += cell.asked;
    sum.brief += cell.brief;
    sum.left_bytes += static_cast<uint64_t>(cell.bytes);
    sum.left_blocks += static_cast<uint64_t>(cell.blocks);
    if (cell.moment > picture.peak) continue;
    sum.held_bytes += static_cast<uint64_t>(cell.bytes);
    sum.held_blocks += static_cast<uint64_t>(cell.blocks);
  }
  return sums;
}

std::vector<HolderSums> sums_of_faces(const Model& model, const Holders& holders, const Picture& picture) {
  std::vector<HolderSums> faces(holders.table().size());
  const std::vector<HolderSums> sums = sums_of(model, holders, picture);
  for (uint32_t holder = 0; holder < sums.size(); ++holder) {
    HolderSums& face = faces[holders.face(holder)];
    const HolderSums& one = sums[holder];
    face.held_bytes += one.held_bytes;
    face.held_blocks += one.held_blocks;
    face.calls += one.calls;
    face.bytes += one.bytes;
    face.brief += one.brief;
    face.left_bytes += one.left_bytes;
    face.left_blocks += one.left_blocks;
  }
  return faces;
}

std::vector<std::string> findings(const Model& model, const Holders& holders, const Picture& picture) {
  return Findings(model, holders, picture).all();
}

}  // namespace cupool::see
