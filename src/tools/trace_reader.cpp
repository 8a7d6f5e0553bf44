// See trace_reader.hpp.
#include "tools/trace_reader.hpp"

#include <algorithm>
#include <cstring>

#include "base/format.hpp"
#include "base/say.hpp"
#include "tools/trace_bytes.hpp"
#include "trace/encoder.hpp"

namespace cupool::tools {

using trace::BlockHead;
using trace::BlockKind;
using trace::FieldType;

namespace {

constexpr size_t kMostNames = 4096;
constexpr size_t kMostEvents = 256;
constexpr size_t kMostPending = 1 << 20;
constexpr uint64_t kMostOffset = uint64_t{1} << 62;

// So that it can be printed.
std::string plain_text(TraceBytes& in, size_t most) {
  std::string out = in.text(most);
  flatten(out.data(), out.size());
  return out;
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
  began_ = head.time;
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
  about_.program = plain_text(in, kLongest);
  about_.host = plain_text(in, kLongest);
  about_.rank = plain_text(in, kLongest);
  about_.library = plain_text(in, kLongest);
  about_.choices.resize(std::min<uint64_t>(in.number(), kMostNames));
  for (auto& words : about_.choices) {
    plain_text(in, kLongest);
    for (uint64_t count = in.number(); count > 0 && in.is_good(); --count)
      words.push_back(plain_text(in, kLongest));
    if (!in.is_good()) return damaged();
  }
  about_.events.resize(std::min<uint64_t>(in.number(), kMostEvents));
  for (TraceEvent& event : about_.events) {
    event.name = plain_text(in, kLongest);
    const uint64_t count = in.number();
    if (!in.is_good() || count > trace::kMostFields) return damaged();
    event.fields.resize(count);
    for (TraceField& field : event.fields) {
      field.name = plain_text(in, kLongest);
      const uint64_t type = in.number();
      field.choice = in.number();
      if (!in.is_good() || type > trace::kMostFieldType ||
          (type == trace::kMostFieldType && field.choice >= about_.choices.size()))
        return damaged();
      field.type = static_cast<FieldType>(type);
    }
  }
  numbers_.resize(about_.events.size());
  freed_ = about_.find_event("freed");
  ended_ = about_.find_event("ended");
  for (uint64_t count = in.number(); count > 0 && in.is_good(); --count)
    about_.calls.push_back(plain_text(in, kLongest));
  return in.is_good() || damaged();
}

bool TraceReader::decode(const BlockHead& head, Row* row) {
  TraceBytes in(content_.data(), content_.size());
  uint64_t time = head.time;
  std::array<uint64_t, 3> shared{};
  for (uint32_t i = 0; i < head.count; ++i) {
    const uint64_t event = in.number();
    if (!in.is_good() || event >= about_.events.size()) return false;
    has_end_ = has_end_ || event == ended_;
    time += static_cast<uint64_t>(trace::unfold(in.number()));
    // Each block begins with all fields as 0.
    auto& [in_block, numbers] = numbers_[event];
    if (in_block != blocks_) numbers = {};
    in_block = blocks_;
    const uint64_t changed = in.number();
    const auto& fields = about_.events[event].fields;
    if (changed >> fields.size() != 0) return false;
    const Ref ref{time, row->words.size() | (event == freed_ ? 0 : Ref::kLater)};
    row->words.push_back(event | fields.size() << 16);
    std::string text;
    for (size_t field = 0; field < fields.size(); ++field) {
      const bool is_told = (changed >> field & 1) != 0;
      if (fields[field].type == FieldType::kText) {
        if (is_told) text = plain_text(in, trace::Text::kMost);
        row->words.push_back(0);
        continue;
      }
      const int place = trace::shared_place(fields[field].type);
      uint64_t& last = place >= 0 ? shared[static_cast<size_t>(place)] : numbers[field];
      if (is_told) {
        const uint64_t value = in.number();
        last = place >= 0 ? last + static_cast<uint64_t>(trace::unfold(value)) : value;
      }
      row->words.push_back(last);
    }
    if (!in.is_good()) return false;
    if (!text.empty()) {
      row->words[ref.at & ~Ref::kLater] |= text.size() << 32;
      const size_t at = row->words.size();
      row->words.resize(at + (text.size() + 7) / 8);
      memcpy(&row->words[at], text.data(), text.size());
    }
    row->is_sorted = row->is_sorted && (row->refs.empty() || !ref.comes_before(row->refs.back()));
    row->refs.push_back(ref);
  }
  return in.is_over();
}

std::string TraceReader::missing_end() const {
  if (is_cut_) return "the last block is incomplete: the program was killed while it was written";
  if (has_end_ || ended_ == about_.events.size()) return "";
  return "the trace has no end: it was written while the program ran, or the program was killed; what came "
         "later is not in it";
}

TraceReader::Row& TraceReader::row_of(uint32_t thread) {
  auto& row = rows_[thread];
  if (row == nullptr) {
    row = std::make_unique<Row>();
    row->thread = thread;
  }
  return *row;
}

void TraceReader::sort(Row* row) const {
  if (row->is_sorted) return;
  std::stable_sort(row->refs.begin() + static_cast<std::ptrdiff_t>(row->next), row->refs.end(),
                   [](const Ref& a, const Ref& b) { return a.comes_before(b); });
  row->is_sorted = true;
}

void TraceReader::emit(uint64_t upto, const std::function<void(const Happened&)>& see) {
  std::vector<Row*> heap;
  for (auto& [thread, row] : rows_) {
    sort(row.get());
    if (row->refs[row->next].time <= upto) heap.push_back(row.get());
  }
  const auto is_after = [](const Row* a, const Row* b) {
    const Ref& one = a->refs[a->next];
    const Ref& other = b->refs[b->next];
    if (one.comes_before(other) || other.comes_before(one)) return other.comes_before(one);
    return a->thread > b->thread;
  };
  std::make_heap(heap.begin(), heap.end(), is_after);
  Happened happened;
  size_t had = 0;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), is_after);
    Row& row = *heap.back();
    const Row* const other = heap.size() > 1 ? heap.front() : nullptr;
    // Mostly a thread tells several events before another one does.
    do {
      const Ref& ref = row.refs[row.next++];
      const uint64_t* words = &row.words[ref.at & ~Ref::kLater];
      const size_t count = *words >> 16 & 0xFFFF;
      happened.time = ref.time;
      happened.thread = row.thread;
      happened.event = static_cast<uint32_t>(*words & 0xFFFF);
      std::copy_n(words + 1, count, happened.values.begin());
      for (size_t i = count; i < had; ++i) happened.values[i] = 0;
      had = count;
      happened.text.assign(reinterpret_cast<const char*>(words + 1 + count), *words >> 32);
      --pending_;
      see(happened);
      if (is_stopped_) return;
    } while (row.next < row.refs.size() && row.refs[row.next].time <= upto &&
             (other == nullptr || is_after(other, &row)));
    if (row.next < row.refs.size() && row.refs[row.next].time <= upto) {
      std::push_heap(heap.begin(), heap.end(), is_after);
    } else {
      heap.pop_back();
    }
  }
  drop_seen();
  left_ = pending_;
}

// Rows of which nothing waits go; of the others what was seen makes room where it is the larger part.
void TraceReader::drop_seen() {
  for (auto at = rows_.begin(); at != rows_.end();) {
    Row& row = *at->second;
    if (row.next == row.refs.size()) {
      at = rows_.erase(at);
      continue;
    }
    if (row.next > row.refs.size() / 2) {
      std::vector<uint64_t> words;
      std::vector<Ref> refs(row.refs.begin() + static_cast<std::ptrdiff_t>(row.next), row.refs.end());
      for (Ref& ref : refs) {
        const uint64_t* const from = &row.words[ref.at & ~Ref::kLater];
        const size_t size = 1 + (*from >> 16 & 0xFFFF) + ((*from >> 32) + 7) / 8;
        ref.at = words.size() | (ref.at & Ref::kLater);
        words.insert(words.end(), from, from + size);
      }
      row.words = std::move(words);
      row.refs = std::move(refs);
      row.next = 0;
    }
    ++at;
  }
}

// About half of the events are not later.
uint64_t TraceReader::middle_time() const {
  std::vector<uint64_t> times;
  for (const auto& [thread, row] : rows_) {
    for (size_t i = row->next; i < row->refs.size(); ++i) times.push_back(row->refs[i].time);
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// ---- Going to a moment.

bool TraceReader::go_to(uint64_t offset) {
  return offset <= kMostOffset && fseeko(file_, static_cast<off_t>(offset), SEEK_SET) == 0;
}

bool TraceReader::head_at(uint64_t offset, BlockHead* head) {
  return go_to(offset) && fread(head, sizeof *head, 1, file_) == 1 && head->magic == trace::kMagic &&
         head->bytes <= trace::kMostContent;
}

// By the heads alone: to read them takes a small part of the time that their contents take. (The indexes of a
// file name the same blocks, but the last one is missing where the program was killed.)
uint64_t TraceReader::find_live_set(uint64_t ns) {
  uint64_t found = 0;
  uint64_t begun = 0;     // a live set whose last part is not seen yet
  uint64_t complete = 0;  // one that is all there, but perhaps told after the moment
  uint64_t complete_round = 0;
  bool is_first = true;
  BlockHead head;
  for (uint64_t at = offset_; head_at(at, &head); at += sizeof head + head.bytes) {
    const auto kind = static_cast<BlockKind>(head.kind);
    if (kind != BlockKind::kEvents && kind != BlockKind::kLive) continue;
    if (is_first && kind == BlockKind::kLive) began_ = head.time;
    is_first = false;
    // What is in a live set was told before the next round.
    if (head.round - std::min(head.round, began_) > ns) break;
    if (complete != 0 && head.round > complete_round) found = complete;
    if (kind != BlockKind::kLive) continue;
    if ((head.flags & trace::kFirstPart) != 0) begun = at;
    if ((head.flags & trace::kLastPart) == 0) continue;
    complete = begun;
    complete_round = head.round;
  }
  return found;
}

void TraceReader::skip_to(uint64_t ns) {
  const uint64_t here = offset_;
  if (!go_to(here)) return;
  const uint64_t to = find_live_set(ns);
  BlockHead head;
  bool is_good = to != 0;
  for (uint64_t at = here; is_good && at < to; at += sizeof head + head.bytes) {
    is_good = head_at(at, &head);
    const auto kind = static_cast<BlockKind>(head.kind);
    if (!is_good || (kind != BlockKind::kStacks && kind != BlockKind::kModules)) continue;
    is_good = go_to(at) && next_block(&head) == Next::kBlock && read_records(head);
  }
  is_skipped_ = is_good && go_to(to);
  offset_ = is_skipped_ ? to : here;
  // (What is wrong here is found again, and said, by who reads on.)
  error_.clear();
  is_cut_ = false;
  if (!is_skipped_) go_to(here);
}

bool TraceReader::read_records(const BlockHead& head) {
  const auto kind = static_cast<BlockKind>(head.kind);
  if (kind == BlockKind::kStacks) return stacks_.read_stacks(content_.data(), head.bytes, head.count);
  if (kind == BlockKind::kModules) return stacks_.read_modules(content_.data(), head.bytes, head.count);
  return true;
}

bool TraceReader::read(const std::function<void(const Happened&)>& see) {
  constexpr uint64_t kAll = ~uint64_t{0};
  BlockHead head;
  uint64_t round = 0;
  bool seen_live = false;
  for (;;) {
    if (is_stopped_) return true;
    const Next next = next_block(&head);
    if (next != Next::kBlock) {
      emit(kAll, see);
      return next == Next::kEnd;
    }
    // (Not each time that hardly anything came: a file may have been made for that.)
    // A thread may be stopped for a while between the time that it tells and the telling.
    constexpr uint64_t kLate = 2'000'000'000;
    if (head.round != round && pending_ > 2 * left_) emit(round - std::min(round, kLate), see);
    round = head.round;
    const auto kind = static_cast<BlockKind>(head.kind);
    if (kind == BlockKind::kLive && (head.flags & trace::kFirstPart) != 0) ++live_sets_;
    // From the beginning of a trace on nothing is news in a live set. One that was kept in memory begins with
    // a live set.
    if (!read_records(head)) {
      emit(kAll, see);
      return fail(make_text("the block that ends at byte {} does not hold what its head says", offset_));
    }
    const bool is_first_live = kind == BlockKind::kLive && events_ == 0 && !seen_live;
    if (kind != BlockKind::kEvents && !is_first_live) continue;
    if (is_first_live && !is_skipped_) began_ = head.time;
    seen_live = is_first_live && (head.flags & trace::kLastPart) != 0;
    if (head.count != 0) {
      Row& row = row_of(head.thread);
      const size_t had = row.refs.size();
      const bool is_good = decode(head, &row);
      if (!is_good) row.refs.resize(had);
      pending_ += row.refs.size() - had;
      if (!is_good) {
        drop_seen();
        emit(kAll, see);
        return fail(make_text("the block that ends at byte {} does not hold what its head says", offset_));
      }
    }
    if (kind == BlockKind::kEvents) {
      events_ += head.count;
      event_bytes_ += sizeof head + head.bytes;
    }
    if (pending_ > kMostPending) emit(middle_time(), see);
  }
}

}  // namespace cupool::tools
