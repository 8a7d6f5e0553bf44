// See model.hpp.
#include "see/model.hpp"

#include <algorithm>

#include "base/say.hpp"
#include "trace/live_set.hpp"

namespace cupool::see {

using tools::Happened;

namespace {

constexpr uint64_t kMostDevices = 255;
constexpr size_t kMostLives = (size_t{1} << 31) - 2;
constexpr uint32_t kMostNumbers = 0xFFFF;  // of threads and contexts

uint64_t place_of(uint64_t address, uint64_t kind) { return address << 2 | trace::space_of(kind); }

uint16_t short_call(uint64_t call) { return static_cast<uint16_t>(std::min<uint64_t>(call, 0xFFFF)); }
uint8_t short_word(uint64_t number) { return static_cast<uint8_t>(std::min<uint64_t>(number, 0xFF)); }

}  // namespace

// ---- Tables of the file.

Model::Fields Model::fields_of(std::string_view name) const {
  Fields at;
  const size_t place = about().find_event(name);
  if (place == about().events.size()) return at;
  at.event = static_cast<uint32_t>(place);
  const tools::TraceEvent& event = about().events[place];
  const std::pair<int*, const char*> fields[] = {
      {&at.address, "address"}, {&at.asked, "asked"},   {&at.more, "more"},     {&at.sort, "sort"},
      {&at.stack, "stack"},     {&at.call, "call"},     {&at.kind, "kind"},     {&at.stream, "stream"},
      {&at.context, "context"}, {&at.device, "device"}, {&at.sample, "sample"}, {&at.thread, "thread"},
      {&at.ns, "ns"},           {&at.cause, "cause"},   {&at.what, "what"},     {&at.why, "why"},
      {&at.bytes, "bytes"},     {&at.free, "free"},     {&at.total, "total"},   {&at.reserved, "reserved"},
      {&at.edge, "edge"},       {&at.range, "range"},   {&at.count, "count"},   {&at.result, "result"},
  };
  for (const auto& [field, text] : fields) *field = event.find(text);
  return at;
}

void Model::find_fields() {
  allocated_ = fields_of("allocated");
  freed_ = fields_of("freed");
  live_ = fields_of("live");
  failed_ = fields_of("failed");
  waited_ = fields_of("waited");
  segment_ = fields_of("segment");
  out_of_memory_ = fields_of("out_of_memory");
  driver_ = fields_of("driver");
  counters_ = fields_of("counters");
  phase_ = fields_of("phase");
  context_ended_ = fields_of("context_ended");
  lost_ = fields_of("lost");
  kinds_ = words_of("allocated", "kind");
  causes_ = words_of("waited", "cause");
  dealings_ = words_of("segment", "what");
  whys_ = words_of("segment", "why");
  pool_kind_ = 0xFF;
  for (size_t i = 0; kinds_ != nullptr && i < kinds_->size() && i < 256; ++i) {
    const std::string& kind = (*kinds_)[i];
    is_host_kind_[i] = kind == "pinned" || kind == "registered" || kind == "spilled";
    if (kind == "pool") pool_kind_ = static_cast<uint8_t>(i);
  }
}

const std::vector<std::string>* Model::words_of(std::string_view event, std::string_view field) const {
  const size_t place = about().find_event(event);
  if (place == about().events.size()) return nullptr;
  const int found = about().events[place].find(field);
  if (found < 0) return nullptr;
  const tools::TraceField& row = about().events[place].fields[static_cast<size_t>(found)];
  return row.type == trace::FieldType::kChoice ? &about().choices[row.choice] : nullptr;
}

std::string Model::word(const std::vector<std::string>* words, uint64_t number) const {
  return words != nullptr && number < words->size() ? (*words)[number] : make_text("#{}", number);
}

std::string Model::call_name(uint64_t call) const {
  return call < about().calls.size() ? about().calls[call] : "the pool";
}

uint32_t Model::number_of_stack(uint64_t stack) {
  const auto [at, is_new] = stack_index_.try_emplace(stack, static_cast<uint32_t>(stack_numbers.size()));
  if (is_new) stack_numbers.push_back(stack);
  return at->second;
}
uint32_t Model::number_of_stream(uint64_t stream) {
  const auto [at, is_new] = stream_index_.try_emplace(stream, static_cast<uint32_t>(streams.size()));
  if (is_new) streams.push_back(stream);
  return at->second;
}
// (More than there are numbers share the last one.)
uint16_t Model::number_of_thread(uint32_t thread) {
  if (const auto found = thread_index_.find(thread); found != thread_index_.end()) return found->second;
  if (threads.size() > kMostNumbers) return kMostNumbers;
  const auto number = static_cast<uint16_t>(threads.size());
  thread_index_[thread] = number;
  threads.push_back(thread);
  return number;
}
uint16_t Model::number_of_context(uint64_t context) {
  if (const auto found = context_index_.find(context); found != context_index_.end()) return found->second;
  if (context_index_.size() > kMostNumbers) return kMostNumbers;
  const auto number = static_cast<uint16_t>(context_index_.size());
  context_index_[context] = number;
  return number;
}

// ---- Reading.

bool Model::read(const std::function<void()>& progress) {
  find_fields();
  number_of_stack(0);
  number_of_stream(0);
  constexpr uint64_t kBetween = 1 << 16;
  const bool is_whole = reader_.read([&](const Happened& now) {
    take(now);
    if (++events_ % kBetween == 0) progress();
  });
  return is_whole;
}

void Model::take(const Happened& now) {
  // (Memory in a live set is from before.)
  if (now.event != live_.event) {
    // (A wait began before it is told.)
    const uint64_t ns = now.event == waited_.event ? std::min(value(now, waited_.ns), now.time) : 0;
    if (first == 0) first = now.time - ns;
    last = std::max(last, now.time);
  }
  if (now.event == allocated_.event) return allocate(now, allocated_);
  if (now.event == live_.event) return allocate(now, live_);
  if (now.event == freed_.event) {
    const uint64_t place = place_of(value(now, freed_.address), value(now, freed_.kind));
    const uint32_t* const found = places_.find(place);
    if (found == nullptr) {
      ++unknown_frees;
      return;
    }
    Life& life = lives[*found];
    life.free_call = short_call(value(now, freed_.call));
    life.free_stack = number_of_stack(value(now, freed_.stack));
    life.free_thread = number_of_thread(now.thread);
    end_life(*found, now.time);
    places_.erase(place);
  } else if (now.event == waited_.event) {
    waits.push_back({now.time, std::min(value(now, waited_.ns), now.time - std::min(first, now.time)),
                     number_of_stack(value(now, waited_.stack)), number_of_thread(now.thread),
                     short_call(value(now, waited_.call)), short_word(value(now, waited_.cause))});
  } else if (now.event == segment_.event) {
    deal(now);
  } else if (now.event == phase_.event) {
    phase(now);
  } else if (now.event == failed_.event) {
    // (Of a free: nothing was asked.)
    if (value(now, failed_.asked) != 0)
      failures.push_back({now.time, value(now, failed_.asked), number_of_stack(value(now, failed_.stack)),
                          number_of_thread(now.thread), short_call(value(now, failed_.call)),
                          short_word(value(now, failed_.device)), false});
  } else if (now.event == out_of_memory_.event) {
    failures.push_back({now.time, value(now, out_of_memory_.asked), 0, number_of_thread(now.thread), 0xFFFF,
                        short_word(value(now, out_of_memory_.device)), true});
  } else if (now.event == driver_.event) {
    const uint64_t total = value(now, driver_.total);
    const uint64_t free = std::min(total, value(now, driver_.free));
    const uint64_t device = std::min(value(now, driver_.device), kMostDevices);
    devices = std::max(devices, device + 1);
    driver_says.push_back({now.time, total - free, total, static_cast<uint8_t>(device)});
    set_reserved(now.time, device, value(now, driver_.reserved));
  } else if (now.event == counters_.event) {
    set_reserved(now.time, std::min(value(now, counters_.device), kMostDevices),
                 value(now, counters_.reserved));
  } else if (now.event == context_ended_.event) {
    end_context(value(now, context_ended_.context), now.time);
  } else if (now.event == lost_.event) {
    lost += value(now, lost_.count);
  }
}

void Model::allocate(const Happened& now, const Fields& at) {
  if (lives.size() >= kMostLives) {
    ++lost;
    return;
  }
  const uint64_t kind = value(now, at.kind);
  uint32_t* const place = places_.add(place_of(value(now, at.address), kind));
  if (*place != kNone) end_life(*place, now.time);
  const auto number = static_cast<uint32_t>(lives.size());
  *place = number;
  const uint64_t device = std::min(value(now, at.device), kMostDevices);
  devices = std::max(devices, device + 1);
  const uint64_t stack = value(now, at.stack);
  Life life;
  life.address = value(now, at.address);
  // (No device has more: sums stay sums.)
  constexpr uint64_t kMostBytes = uint64_t{1} << 48;
  life.asked = std::min(value(now, at.asked), kMostBytes);
  life.given = life.asked + std::min(value(now, at.more), kMostBytes);
  life.begin = now.event == live_.event && first != 0 ? std::min(now.time, first) : now.time;
  life.stack = number_of_stack(stack);
  life.stream = number_of_stream(value(now, at.stream));
  life.call_begin = calls_;
  life.thread = number_of_thread(at.thread >= 0 ? static_cast<uint32_t>(value(now, at.thread)) : now.thread);
  life.call = short_call(value(now, at.call));
  life.context = number_of_context(value(now, at.context));
  life.kind = short_word(kind);
  life.device = static_cast<uint8_t>(device);
  life.sort = short_word(value(now, at.sort));
  life.is_before = now.event == live_.event;
  lives.push_back(life);
  order.push_back(number);
  if (!life.is_before) ++calls_;
  if (stack == 0) ++stackless;
  if (const uint64_t sample = value(now, at.sample); sample != 0 && stack != 0) {
    ++sampled;
    sample_bytes = std::max(sample_bytes, sample);
  }
}

void Model::end_life(uint32_t number, uint64_t time) {
  Life& life = lives[number];
  life.end = std::max(time, life.begin);
  life.call_end = calls_;
  order.push_back(number | kIsFree);
}

// Its segments are known by the blocks that lay in them.
void Model::end_context(uint64_t context, uint64_t time) {
  const uint16_t number = number_of_context(context);
  std::vector<uint64_t> gone;
  std::vector<uint64_t> segments_gone;
  places_.for_each([&](uint64_t key, uint32_t life) {
    if (lives[life].context != number || !trace::ends_with_context(lives[life].kind)) return;
    gone.push_back(key);
    if (!is_pools(lives[life])) return;
    const auto after = open_segments_.upper_bound(lives[life].address);
    if (after == open_segments_.begin()) return;
    const auto one = std::prev(after);
    if (lives[life].address - one->first < segments[one->second].bytes) segments_gone.push_back(one->first);
  });
  for (const uint64_t key : gone) {
    end_life(*places_.find(key), time);
    places_.erase(key);
  }
  for (const uint64_t address : segments_gone) {
    const auto found = open_segments_.find(address);
    if (found == open_segments_.end()) continue;
    segments[found->second].end = time;
    open_segments_.erase(found);
  }
}

// ---- The pool and the driver.

// From what was taken and given back, and from what the counters say: the sum is not known in a trace that
// begins in the middle, nor after the end of a context, with which its memory went without a word.
void Model::set_reserved(uint64_t time, uint64_t device, uint64_t bytes) {
  if (reserved_now_.size() <= device) reserved_now_.resize(device + 1);
  if (reserved_now_[device] == bytes) return;
  reserved_now_[device] = bytes;
  reserved.push_back({time, bytes, static_cast<uint8_t>(device)});
}

void Model::deal(const Happened& now) {
  Dealing one;
  one.time = now.time;
  one.address = value(now, segment_.address);
  one.bytes = std::min(value(now, segment_.bytes), uint64_t{1} << 48);
  one.ns = std::min(value(now, segment_.ns), now.time - std::min(first, now.time));
  one.what = short_word(value(now, segment_.what));
  one.why = short_word(value(now, segment_.why));
  one.device = static_cast<uint8_t>(std::min(value(now, segment_.device), kMostDevices));
  devices = std::max(devices, uint64_t{one.device} + 1);
  dealings.push_back(one);
  const std::string what = dealing_name(one.what);
  const uint64_t before = one.device < reserved_now_.size() ? reserved_now_[one.device] : 0;
  if (what == "taken") set_reserved(one.time, one.device, before + one.bytes);
  if (what == "given back") set_reserved(one.time, one.device, before - std::min(before, one.bytes));
  if (one.address == 0 || one.bytes == 0) return;
  if (what == "taken" || what == "mapped") {
    // What is still there in its place has ended without a word.
    const uint64_t end = one.address + one.bytes;
    auto at = open_segments_.lower_bound(one.address);
    if (at != open_segments_.begin()) {
      const auto left = std::prev(at);
      if (left->first + segments[left->second].bytes > one.address) at = left;
    }
    while (at != open_segments_.end() && at->first < end) {
      segments[at->second].end = one.time;
      at = open_segments_.erase(at);
    }
    open_segments_[one.address] = static_cast<uint32_t>(segments.size());
    segments.push_back({one.address, one.bytes, one.time, kNever, one.device, what == "mapped"});
  } else if (what == "given back" || what == "unmapped" || what == "moved") {
    const auto found = open_segments_.find(one.address);
    if (found == open_segments_.end()) return;
    segments[found->second].end = one.time;
    open_segments_.erase(found);
  }
}

uint32_t Model::number_of_phase(const std::string& name) {
  const auto [at, is_new] = phase_index_.try_emplace(name, static_cast<uint32_t>(phase_names.size()));
  if (is_new) phase_names.push_back(name);
  return at->second;
}

void Model::phase(const Happened& now) {
  const std::string edge = word(words_of("phase", "edge"), value(now, phase_.edge));
  if (edge == "start" || edge == "stop") return range(now, edge == "start");
  const uint16_t thread = number_of_thread(now.thread);
  std::vector<uint32_t>& open = open_phases_[thread];
  if (edge == "begin") {
    open.push_back(static_cast<uint32_t>(phases.size()));
    phase_edges.push_back(open.back());
    phases.push_back({now.time, kNever, number_of_phase(now.text), thread,
                      static_cast<uint16_t>(std::min<size_t>(open.size() - 1, 0xFFFF))});
  } else if (edge == "end" && !open.empty()) {
    phases[open.back()].end = now.time;
    phase_edges.push_back(open.back() | kIsFree);
    open.pop_back();
  }
}

void Model::range(const Happened& now, bool is_start) {
  // Of more that are open at once than can be looked at, all have the last row.
  constexpr size_t kMostRows = 64;
  const uint64_t number = value(now, phase_.range);
  const auto found = open_ranges_.find(number);
  if (found != open_ranges_.end()) {
    Phase& one = ranges[found->second];
    one.end = now.time;
    range_rows_[one.depth] = false;
    open_ranges_.erase(found);
  }
  if (!is_start) return;
  size_t row =
      static_cast<size_t>(std::find(range_rows_.begin(), range_rows_.end(), false) - range_rows_.begin());
  if (row == range_rows_.size() && row < kMostRows) range_rows_.push_back(false);
  row = std::min(row, range_rows_.size() - 1);
  range_rows_[row] = true;
  open_ranges_[number] = static_cast<uint32_t>(ranges.size());
  ranges.push_back({now.time, kNever, number_of_phase(now.text), number_of_thread(now.thread),
                    static_cast<uint16_t>(row)});
}

}  // namespace cupool::see
