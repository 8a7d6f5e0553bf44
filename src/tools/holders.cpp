// See holders.hpp.
#include "tools/holders.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <tuple>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "tools/table.hpp"

namespace cupool::tools {

bool Moment::parse(const std::string& text, Moment* out) {
  *out = {};
  if (text == "begin" || text == "peak" || text == "end") {
    out->which = text == "begin" ? Which::kBegin : text == "peak" ? Which::kPeak : Which::kEnd;
    return true;
  }
  constexpr double kMost = 1e9;
  double seconds = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, seconds);
  if (error != std::errc() || !(seconds >= 0) || seconds > kMost) return false;
  // (As reports write them: there may be a space between.)
  const std::string unit(std::find_if(at, end, [](char c) { return c != ' '; }), end);
  const double ns = unit.empty() || unit == "s"         ? 1e9
                    : unit == "ms"                      ? 1e6
                    : unit == "us" || unit == "\u00b5s" ? 1e3
                    : unit == "ns"                      ? 1
                                                        : 0;
  out->which = Which::kTime;
  out->ns = static_cast<uint64_t>(std::llround(seconds * ns));
  return ns != 0;
}

std::string Moment::print() const {
  switch (which) {
    case Which::kBegin:
      return "at the beginning";
    case Which::kPeak:
      return "at the peak";
    case Which::kEnd:
      return "at the end";
    case Which::kTime:
      break;
  }
  return print_moment(ns) + " after the beginning";
}

bool read_most(const Arguments& arguments, size_t* out) {
  constexpr size_t kUsual = 10;
  constexpr size_t kMost = 1'000'000;
  *out = kUsual;
  const std::string text = arguments.value("--top");
  if (text.empty()) return true;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if (error == std::errc() && end == text.data() + text.size() && *out > 0 && *out <= kMost) return true;
  say(stderr, "cupool: {} is no number; --top says how many are shown\n", printable(text));
  return false;
}

bool Holders::read(const std::string& path, const Moment& moment, const See& also) {
  const auto open = [&] {
    text_ = nullptr;
    file_ = open_trace(path);
    if (file_ == nullptr) return false;
    reader_ = std::make_unique<TraceReader>(file_.get());
    if (!reader_->begin()) {
      say(stderr, "cupool: cannot read {}: {}\n", printable(path), reader_->error());
      return false;
    }
    live_ = std::make_unique<TraceLive>(reader_->about());
    text_ = std::make_unique<StackText>(reader_->stacks(), names_);
    return true;
  };
  if (!open()) return false;
  const auto see_it = [&](const Happened& happened) {
    live_->see(happened);
    time_ = happened.time - std::min(happened.time, reader_->began());
  };
  const bool has_end = moment.which == Moment::Which::kBegin || moment.which == Moment::Which::kTime;
  if (moment.which == Moment::Which::kPeak) {
    is_whole_ = reader_->read([&](const Happened& happened) {
      live_->see(happened);
      if (also) also(happened);
    });
    const uint64_t after = live_->most_after();
    if (!open()) return false;
    uint64_t seen = 0;
    reader_->read([&](const Happened& happened) {
      if (seen++ < after) see_it(happened);
    });
  } else {
    // Who sees each event sees all of them.
    bool is_reached = moment.which != Moment::Which::kTime;
    if (!also) reader_->skip_to(has_end ? moment.ns : ~uint64_t{0});
    is_whole_ = reader_->read([&](const Happened& happened) {
      if (also) also(happened);
      if (!has_end || happened.time <= reader_->began() + moment.ns)
        see_it(happened);
      else {
        is_reached = true;
        if (!also) reader_->stop();
      }
    });
    // (What is printed of a moment is rounded.)
    constexpr uint64_t kRounding = 1000;
    if (!is_reached && moment.ns > time_ + kRounding) {
      say(stderr, "cupool: {} ends {} after its beginning, so it does not tell of a moment {} after it\n",
          printable(path), print_moment(time_), print_moment(moment.ns));
      return false;
    }
  }
  group();
  return true;
}

void Holders::group() {
  std::map<std::tuple<uint64_t, uint64_t, uint64_t>, Holder> groups;
  has_stacks_ = is_sampled_ = false;
  live_->for_each([&](const TraceLive::Block& block) {
    has_stacks_ = has_stacks_ || block.stack != 0;
    is_sampled_ = is_sampled_ || block.sample != 0;
  });
  live_->for_each([&](const TraceLive::Block& block) {
    // What was not drawn is in what the drawn ones stand for.
    if (is_sampled_ && block.stack == 0) return;
    const uint64_t call = block.stack == 0 ? block.call : 0;
    Holder& holder = groups[{block.stack, call, block.kind}];
    holder.stack = block.stack;
    holder.call = block.call;
    holder.kind = block.kind;
    holder.bytes += static_cast<double>(block.given()) * block.weight();
    holder.blocks += block.weight();
  });
  all_.clear();
  for (auto& [key, holder] : groups) all_.push_back(holder);
  std::stable_sort(all_.begin(), all_.end(),
                   [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
}

std::vector<std::string> Holders::lines(const Holder& holder) {
  std::vector<std::string> out = text_->lines(holder.stack);
  if (out.empty()) out.push_back(print_call(about(), holder.call));
  return out;
}

std::string Holders::kind(const Holder& holder) const {
  return print_choice(about(), "allocated", "kind", holder.kind);
}

std::string print_choice(const TraceAbout& about, const char* event, const char* field, uint64_t number) {
  const size_t place = about.find_event(event);
  const int at = place < about.events.size() ? about.events[place].find(field) : -1;
  if (at < 0) return "?";
  const TraceField& found = about.events[place].fields[static_cast<size_t>(at)];
  if (found.type != trace::FieldType::kChoice || number >= about.choices[found.choice].size()) return "?";
  return about.choices[found.choice][number];
}

std::string print_call(const TraceAbout& about, uint64_t number) {
  return number < about.calls.size() ? about.calls[number] : "before the trace began";
}

std::string print_moment(uint64_t ns) {
  const uint64_t us = ns / 1000 + (ns % 1000 != 0 ? 1 : 0);
  return make_text("{}.{:06} s", us / 1'000'000, us % 1'000'000);
}

std::string print_held(double bytes, double blocks) {
  const auto count = static_cast<uint64_t>(std::llround(blocks));
  return make_text("{} in {} {}", print_bytes(static_cast<uint64_t>(std::llround(bytes))), count,
                   count == 1 ? "block" : "blocks");
}

std::vector<std::string> holder_lines(Holders& holders, size_t most) {
  // Stacks of the same lines are one holder. More are looked up than shown, so that few of those are missed.
  constexpr size_t kLookedUp = 4;
  struct Shown {
    double bytes = 0;
    double blocks = 0;
  };
  std::map<std::pair<std::vector<std::string>, std::string>, Shown> shown;
  const size_t count = std::min(holders.all().size(), kLookedUp * most);
  for (size_t i = 0; i < count; ++i) {
    const Holder& holder = holders.all()[i];
    Shown& one = shown[{holders.lines(holder), holders.kind(holder)}];
    one.bytes += holder.bytes;
    one.blocks += holder.blocks;
  }
  std::vector<const decltype(shown)::value_type*> sorted;
  sorted.reserve(shown.size());
  for (const auto& one : shown) sorted.push_back(&one);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto* a, const auto* b) { return a->second.bytes > b->second.bytes; });
  if (sorted.size() > most) sorted.resize(most);
  double told = 0;
  double all = 0;
  for (const Holder& holder : holders.all()) all += holder.bytes;
  std::vector<std::string> out;
  for (const auto* one : sorted) {
    told += one->second.bytes;
    out.push_back(
        make_text("  {}, {}", print_held(one->second.bytes, one->second.blocks), one->first.second));
    for (const std::string& line : one->first.first) out.push_back("      " + line);
  }
  // (What is left over of estimates is no holder.)
  if (all - told >= 1)
    out.push_back(make_text("  {} of others", print_bytes(static_cast<uint64_t>(std::llround(all - told)))));
  return out;
}

void print_missing(const CodeNames& names) {
  for (const std::string& sentence : names.missing()) say(stderr, "cupool: {}\n", sentence);
}

}  // namespace cupool::tools
