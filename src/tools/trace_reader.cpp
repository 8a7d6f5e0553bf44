// See trace_reader.hpp.
#include "tools/trace_reader.hpp"

#include <algorithm>
#include <cstring>

#include "base/say.hpp"
#include "tools/trace_bytes.hpp"
#include "trace/encoder.hpp"
#include "trace/live_set.hpp"

namespace cupool::tools {

using trace::BlockHead;
using trace::BlockKind;
using trace::FieldType;

namespace {

constexpr size_t kMostNames = 4096;
constexpr size_t kMostEvents = 256;
constexpr size_t kMostPending = 1 << 20;

std::string word(const std::vector<std::string>& words, uint64_t number) {
  return number < words.size() ? words[number] : make_text("#{}", number);
}

}  // namespace

int TraceEvent::find(std::string_view field) const {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].name == field) return static_cast<int>(i);
  }
  return -1;
}

size_t TraceAbout::find_event(std::string_view name) const {
  const auto found =
      std::find_if(events.begin(), events.end(), [&](const TraceEvent& e) { return e.name == name; });
  return static_cast<size_t>(found - events.begin());
}

bool TraceReader::fail(const std::string& why) {
  error_ = why;
  return false;
}

TraceReader::Next TraceReader::next_block(BlockHead* head) {
  const uint64_t at = offset_;
  const size_t got = fread(head, 1, sizeof *head, file_);
  if (got == 0 && ferror(file_) == 0) return Next::kEnd;
  if (ferror(file_) != 0) {
    fail("it cannot be read");
    return Next::kDamaged;
  }
  if (got < sizeof *head) {
    is_cut_ = true;
    return Next::kEnd;
  }
  if (head->magic != trace::kMagic || head->bytes > trace::kMostContent) {
    fail(make_text("it is damaged at byte {}: no block begins there", at));
    return Next::kDamaged;
  }
  content_.resize(head->bytes);
  if (fread(content_.data(), 1, head->bytes, file_) < head->bytes) {
    is_cut_ = true;
    return Next::kEnd;
  }
  if (trace::checksum_of(*head, content_.data()) != head->checksum) {
    fail(make_text("it is damaged at byte {}: the checksum of the block there is wrong", at));
    return Next::kDamaged;
  }
  offset_ += sizeof *head + head->bytes;
  ++blocks_;
  return Next::kBlock;
}

bool TraceReader::begin() {
  BlockHead head;
  const Next next = next_block(&head);
  if (next == Next::kEnd) return fail(is_cut_ ? "it is cut before its head ends" : "it is empty");
  if (next == Next::kDamaged) {
    const bool is_trace = head.magic == trace::kMagic;
    return fail(is_trace ? error_ : "it is no trace of cupool");
  }
  if (head.kind != static_cast<uint16_t>(BlockKind::kAbout)) return fail("it has no head");
  return parse_about();
}

bool TraceReader::parse_about() {
  TraceBytes in(content_.data(), content_.size());
  const auto damaged = [&] { return fail("its head does not say what a head says"); };
  about_.version = in.number();
  if (about_.version > trace::kFormatVersion)
    return fail(
        make_text("it has version {} of the format, and this cupool reads versions up to {}: use a newer one",
                  about_.version, trace::kFormatVersion));
  if (about_.version == 0) return damaged();
  about_.monotonic = in.number();
  about_.wall = in.number();
  about_.pid = in.number();
  constexpr size_t kLongest = 4096;
  about_.program = in.text(kLongest);
  about_.host = in.text(kLongest);
  about_.rank = in.text(kLongest);
  about_.library = in.text(kLongest);
  about_.choices.resize(std::min<uint64_t>(in.number(), kMostNames));
  for (auto& words : about_.choices) {
    in.text(kLongest);
    for (uint64_t count = in.number(); count > 0 && in.is_good(); --count) words.push_back(in.text(kLongest));
    if (!in.is_good()) return damaged();
  }
  about_.events.resize(std::min<uint64_t>(in.number(), kMostEvents));
  for (TraceEvent& event : about_.events) {
    event.name = in.text(kLongest);
    const uint64_t count = in.number();
    if (!in.is_good() || count > trace::kMostFields) return damaged();
    event.fields.resize(count);
    for (TraceField& field : event.fields) {
      field.name = in.text(kLongest);
      const uint64_t type = in.number();
      field.choice = in.number();
      if (!in.is_good() || type > trace::kMostFieldType ||
          (type == trace::kMostFieldType && field.choice >= about_.choices.size()))
        return damaged();
      field.type = static_cast<FieldType>(type);
    }
  }
  numbers_.resize(about_.events.size());
  for (uint64_t count = in.number(); count > 0 && in.is_good(); --count)
    about_.calls.push_back(in.text(kLongest));
  return in.is_good() || damaged();
}

bool TraceReader::decode(const BlockHead& head) {
  TraceBytes in(content_.data(), content_.size());
  uint64_t time = head.time;
  std::array<uint64_t, 3> shared{};
  for (uint32_t i = 0; i < head.count; ++i) {
    Happened now;
    const uint64_t event = in.number();
    if (!in.is_good() || event >= about_.events.size()) return false;
    now.event = static_cast<uint32_t>(event);
    now.thread = head.thread;
    time += static_cast<uint64_t>(trace::unfold(in.number()));
    now.time = time;
    // Each block begins with all fields as 0.
    auto& [in_block, numbers] = numbers_[event];
    if (in_block != blocks_) numbers = {};
    in_block = blocks_;
    const uint64_t changed = in.number();
    const auto& fields = about_.events[event].fields;
    if (fields.size() < 64 && changed >> fields.size() != 0) return false;
    for (size_t field = 0; field < fields.size(); ++field) {
      const bool is_told = (changed >> field & 1) != 0;
      if (fields[field].type == FieldType::kText) {
        if (is_told) now.text = in.text(trace::Text::kMost);
        continue;
      }
      const int place = trace::shared_place(fields[field].type);
      uint64_t& last = place >= 0 ? shared[static_cast<size_t>(place)] : numbers[field];
      if (is_told) {
        const uint64_t value = in.number();
        last = place >= 0 ? last + static_cast<uint64_t>(trace::unfold(value)) : value;
      }
      now.values[field] = last;
    }
    if (!in.is_good()) return false;
    pending_.push_back(std::move(now));
  }
  return in.is_over();
}

// A free and an allocation of one moment: the free was of the life before.
void TraceReader::emit(uint64_t upto, const std::function<void(const Happened&)>& see) {
  const size_t freed = about_.find_event("freed");
  const auto comes_first = [&](const Happened& a, const Happened& b) {
    return a.time != b.time ? a.time < b.time : a.event == freed && b.event != freed;
  };
  const auto end = std::stable_partition(pending_.begin(), pending_.end(),
                                         [&](const Happened& one) { return one.time <= upto; });
  std::stable_sort(pending_.begin(), end, comes_first);
  std::for_each(pending_.begin(), end, see);
  pending_.erase(pending_.begin(), end);
  left_ = pending_.size();
}

// About half of the events are not later.
uint64_t TraceReader::middle_time() const {
  std::vector<uint64_t> times;
  for (const Happened& one : pending_) times.push_back(one.time);
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

bool TraceReader::read(const std::function<void(const Happened&)>& see) {
  constexpr uint64_t kAll = ~uint64_t{0};
  BlockHead head;
  uint64_t round = 0;
  bool seen_live = false;
  for (;;) {
    const Next next = next_block(&head);
    if (next != Next::kBlock) {
      emit(kAll, see);
      return next == Next::kEnd;
    }
    // (Not each time that hardly anything came: a file may have been made for that.)
    // A thread may be stopped for a while between the time that it tells and the telling.
    constexpr uint64_t kLate = 2'000'000'000;
    if (head.round != round && pending_.size() > 2 * left_) emit(round - std::min(round, kLate), see);
    round = head.round;
    const auto kind = static_cast<BlockKind>(head.kind);
    if (kind == BlockKind::kLive && (head.flags & trace::kFirstPart) != 0) ++live_sets_;
    // From the beginning of a trace on nothing is news in a live set. One that was kept in memory begins with
    // a live set.
    const bool is_good =
        kind == BlockKind::kStacks    ? stacks_.read_stacks(content_.data(), head.bytes, head.count)
        : kind == BlockKind::kModules ? stacks_.read_modules(content_.data(), head.bytes, head.count)
                                      : true;
    if (!is_good) {
      emit(kAll, see);
      return fail(make_text("the block that ends at byte {} does not hold what its head says", offset_));
    }
    const bool is_first_live = kind == BlockKind::kLive && events_ == 0 && !seen_live;
    if (kind != BlockKind::kEvents && !is_first_live) continue;
    seen_live = is_first_live && (head.flags & trace::kLastPart) != 0;
    const size_t had = pending_.size();
    if (!decode(head)) {
      pending_.resize(had);
      emit(kAll, see);
      return fail(make_text("the block that ends at byte {} does not hold what its head says", offset_));
    }
    if (kind == BlockKind::kEvents) {
      events_ += pending_.size() - had;
      event_bytes_ += sizeof head + head.bytes;
    }
    if (pending_.size() > kMostPending) emit(middle_time(), see);
  }
}

std::string print_event(const TraceAbout& about, const Happened& happened, uint64_t begin) {
  const TraceEvent& event = about.events[happened.event];
  const uint64_t since = happened.time - std::min(begin, happened.time);
  std::string out =
      make_text("{}.{:09} {} {}", since / 1'000'000'000, since % 1'000'000'000, happened.thread, event.name);
  for (size_t i = 0; i < event.fields.size(); ++i) {
    const TraceField& field = event.fields[i];
    const uint64_t value = happened.values[i];
    switch (field.type) {
      case FieldType::kText:
        if (!happened.text.empty()) out += make_text(" {}=\"{}\"", field.name, happened.text);
        break;
      case FieldType::kChoice:
        out += make_text(" {}={}", field.name, word(about.choices[field.choice], value));
        break;
      case FieldType::kCall:
        out += make_text(" {}={}", field.name, word(about.calls, value));
        break;
      case FieldType::kAddress:
      case FieldType::kStream:
      case FieldType::kContext:
        if (value != 0) out += make_text(" {}={:#x}", field.name, value);
        break;
      default:
        if (value != 0 || field.name == "device") out += make_text(" {}={}", field.name, value);
    }
  }
  return out;
}

// ---- What is live.

TraceLive::Fields TraceLive::fields_of(std::string_view name) const {
  const size_t place = about_.find_event(name);
  if (place == about_.events.size()) return {-1, -1, -1, -1, -1, -1};
  const TraceEvent& event = about_.events[place];
  return {event.find("address"), event.find("asked"),  event.find("more"),
          event.find("context"), event.find("device"), event.find("kind")};
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

void TraceLive::add(Block& block, const Block& now) {
  if (block.time > now.time) return;
  if (block.is_live) drop(block, now.time);
  block = now;
  Sum& sum = sums_[{now.device, now.kind}];
  ++sum.blocks;
  sum.asked += now.asked;
  sum.given += now.asked + now.more;
  sum.most = std::max(sum.most, sum.given);
}

void TraceLive::drop(Block& block, uint64_t time) {
  if (block.time > time) return;
  if (block.is_live) {
    Sum& sum = sums_[{block.device, block.kind}];
    --sum.blocks;
    sum.asked -= block.asked;
    sum.given -= block.asked + block.more;
  }
  block.is_live = false;
  block.time = time;
}

void TraceLive::see(const Happened& happened) {
  const auto place = [&](const Fields& fields) {
    return std::pair{trace::space_of(value(happened, fields.kind)), value(happened, fields.address)};
  };
  if (happened.event == allocated_ || happened.event == live_) {
    const Fields& fields = happened.event == live_ ? of_live_ : of_allocated_;
    add(blocks_[place(fields)], {happened.time, value(happened, fields.asked), value(happened, fields.more),
                                 value(happened, fields.context), value(happened, fields.device),
                                 value(happened, fields.kind), happened.thread, true});
  } else if (happened.event == freed_) {
    const auto found = blocks_.find(place(of_freed_));
    if (found == blocks_.end()) return;
    drop(found->second, happened.time);
    if (!found->second.is_live) blocks_.erase(found);
  } else if (happened.event == context_ended_) {
    const uint64_t context = value(happened, of_context_ended_.context);
    for (auto at = blocks_.begin(); at != blocks_.end();) {
      Block& block = at->second;
      if (block.context == context && trace::ends_with_context(block.kind)) drop(block, happened.time);
      at = block.is_live ? std::next(at) : blocks_.erase(at);
    }
  }
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
