// The blocks that the gatherer makes (gatherer.hpp): events, the head of a trace, stacks and modules, the
// index. They are made one behind the other and written together. Under the gatherer's lock.
#include <time.h>

#include <array>
#include <cstring>
#include <iterator>

#include "base/log.hpp"
#include "trace/gatherer.hpp"
#include "trace/stacks.hpp"

namespace cupool::trace {
namespace {

constexpr size_t kOut = 192 << 10;
constexpr uint64_t kEndRoom = 4096;  // of CUPOOL_TRACE_MAX, for the last block

// Apart from the gatherer, so that they take no room in the library's file.
alignas(64) constinit uint8_t out[kOut] = {};
struct Indexed {
  uint64_t offset;
  uint64_t time;
  uint16_t kind;
};
constinit std::array<Indexed, Gatherer::kIndexed> index = {};

// The numbers and texts of a head or an index.
class Content {
 public:
  Content(uint8_t* at, size_t room) : begin_(at), at_(at), end_(at + room) {}
  void number(uint64_t value) {
    if (end_ - at_ >= static_cast<ptrdiff_t>(kMostVarint)) at_ = put_varint(at_, value);
  }
  void text(const char* value) {
    const size_t size = strlen(value);
    if (static_cast<size_t>(end_ - at_) < size + kMostVarint) return;
    number(size);
    memcpy(at_, value, size);
    at_ += size;
  }
  size_t size() const { return static_cast<size_t>(at_ - begin_); }

 private:
  uint8_t* begin_;
  uint8_t* at_;
  uint8_t* end_;
};

}  // namespace

void Gatherer::open_block(BlockKind kind, uint64_t time, uint32_t thread, int* kept) {
  if (kOut - used_ < sizeof(BlockHead) + kBlockContent) flush(kept);
  head_ = {};
  head_.kind = static_cast<uint16_t>(kind);
  head_.time = time;
  head_.round = round_;
  head_.thread = thread;
  encoder_.begin({out + used_ + sizeof(BlockHead), kBlockContent}, time);
}

void Gatherer::close_block(uint16_t flags) { close_block(encoder_.size(), encoder_.count(), flags); }

void Gatherer::close_block(size_t content, uint32_t count, uint16_t flags) {
  head_.bytes = static_cast<uint32_t>(content);
  head_.count = count;
  head_.flags = flags;
  head_.sequence = sequence_++;
  uint8_t* const block = out + used_;
  head_.checksum = checksum_of(head_, block + sizeof head_);
  memcpy(block, &head_, sizeof head_);
  if (is_written() && indexed_ < kIndexed)
    index[indexed_++] = {place_.size() + used_, head_.time, head_.kind};
  used_ += sizeof head_ + content;
  since_live_set_ += sizeof head_ + content;
}

void Gatherer::flush(int* kept) {
  if (used_ == 0 || !is_on() || (!settings_.has_output && sink_ == nullptr)) {
    used_ = 0;
    return;
  }
  if (sink_ != nullptr) {
    sink_(out, used_, sink_argument_);
    used_ = 0;
    return;
  }
  if (settings_.kept_bytes != 0) {
    kept_.put(out, used_);
    used_ = 0;
    return;
  }
  if (place_.size() + used_ + kEndRoom > settings_.most_bytes) {
    used_ = 0;
    indexed_ = 0;
    --sequence_;
    write_ended(Ending::kFull, kept);
    return stop("it has the size of CUPOOL_TRACE_MAX");
  }
  const char* const why = place_.append(out, used_, kept);
  used_ = 0;
  if (why != nullptr) stop(why);
}

void Gatherer::stop(const char* why) {
  leave_file();
  log::line("the trace {} ends here: {}", place_.path(), why);
}

// Past the limit of flush(): the room for this is kept free.
void Gatherer::write_ended(Ending why, int* kept) {
  const told::Ended ended{why};
  const uint64_t now = now_ns();
  open_block(BlockKind::kEvents, now, 0, kept);
  encoder_.add(Event::kEnded, now, reinterpret_cast<const uint64_t*>(&ended));
  close_block(0);
  if (settings_.kept_bytes == 0) place_.append(out, used_, kept);
  used_ = 0;
}

void Gatherer::make_about() {
  open_block(BlockKind::kAbout, began_, 0, nullptr);
  Content content(out + used_ + sizeof(BlockHead), kBlockContent);
  timespec wall = {};
  clock_gettime(CLOCK_REALTIME, &wall);
  content.number(kFormatVersion);
  content.number(now_ns());
  content.number(static_cast<uint64_t>(wall.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(wall.tv_nsec));
  content.number(about_.pid);
  for (const char* const text : {about_.program, about_.host, about_.rank, about_.version})
    content.text(text);
  content.number(std::size(kChoiceTable));
  for (const ChoiceInfo& choice : kChoiceTable) {
    content.text(choice.name);
    content.number(choice.count);
    for (size_t i = 0; i < choice.count; ++i) content.text(choice.words[i]);
  }
  content.number(kEvents);
  for (const EventInfo& event : kEventTable) {
    content.text(event.name);
    content.number(event.count);
    for (size_t i = 0; i < event.count; ++i) {
      content.text(event.fields[i].name);
      content.number(static_cast<uint64_t>(event.fields[i].type));
      content.number(event.fields[i].choice);
    }
  }
  content.number(about_.calls);
  for (size_t i = 0; i < about_.calls; ++i) content.text(about_.call_name(i));
  close_block(content.size(), 0, 0);
}

template <typename PutRecord>
bool Gatherer::write_record(BlockKind kind, int* kept, PutRecord&& put) {
  if (records_kind_ == kind && put(records_)) return true;
  close_records();
  open_block(kind, round_, 0, kept);
  records_.begin({out + used_ + sizeof(BlockHead), kBlockContent});
  records_kind_ = kind;
  return put(records_);
}

void Gatherer::close_records() {
  if (records_kind_ != BlockKind::kAbout) close_block(records_.size(), records_.count(), 0);
  records_kind_ = BlockKind::kAbout;
}

// (clang does not follow a lock into a lambda.)
void Gatherer::write_stacks(int* kept) {
  stack_tables.modules.tell_new(
      [&](uint64_t number, const Modules::Module& module) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
        const std::string_view build_id(reinterpret_cast<const char*>(module.build_id),
                                        module.build_id_bytes);
        return write_record(BlockKind::kModules, kept, [&](Records& records) {
          return records.module(
              {number, module.map, module.begin, module.end, module.bias, build_id, module.path});
        });
      },
      [&](uint64_t number, uint64_t map) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
        return write_record(BlockKind::kModules, kept,
                            [&](Records& records) { return records.gone(number, map); });
      });
  stack_tables.texts.tell_new(
      [&](uint32_t number, const WordTable::Found& found) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
        return write_record(BlockKind::kStacks, kept,
                            [&](Records& records) { return records.text(number, text_of(found)); });
      });
  stack_tables.places.tell_new(
      [&](uint32_t number, const WordTable::Found& found) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
        return write_record(BlockKind::kStacks, kept, [&](Records& records) {
          return records.place(number, found.words[0], found.words[1], found.words[2]);
        });
      });
  stack_tables.stacks.tell_new([&](uint32_t number, const WordTable::Found& found)
                                   CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
                                     return write_record(BlockKind::kStacks, kept, [&](Records& records) {
                                       return records.stack(number, found.note, found.words.subspan(1));
                                     });
                                   });
  close_records();
}

void Gatherer::forget_told_stacks() {
  stack_tables.modules.forget_told();
  stack_tables.texts.forget_told();
  stack_tables.places.forget_told();
  stack_tables.stacks.forget_told();
}

// So that a reader finds a moment without reading all before it.
void Gatherer::write_index(int* kept) {
  open_block(BlockKind::kIndex, round_, 0, kept);
  Content content(out + used_ + sizeof(BlockHead), kBlockContent);
  const uint64_t here = place_.size() + used_;
  content.number(last_index_);
  content.number(indexed_);
  uint64_t offset = 0;
  uint64_t time = 0;
  for (size_t i = 0; i < indexed_; ++i) {
    content.number(index[i].offset - offset);
    content.number(fold(static_cast<int64_t>(index[i].time - time)));
    content.number(index[i].kind);
    offset = index[i].offset;
    time = index[i].time;
  }
  indexed_ = kIndexed;  // it does not name itself
  close_block(content.size(), 0, 0);
  indexed_ = 0;
  last_index_ = here;
}

}  // namespace cupool::trace
