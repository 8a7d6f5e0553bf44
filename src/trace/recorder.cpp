// See recorder.hpp. A ring is found through a thread-local pointer and is in a list that only grows; the ring
// of a thread that has ended is taken over by a new thread once it is empty.
#include "trace/recorder.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/after_fork.hpp"
#include "base/filters.hpp"
#include "base/lock.hpp"
#include "base/log.hpp"
#include "base/pages.hpp"
#include "base/preserve_errno.hpp"
#include "trace/encoder.hpp"
#include "trace/kept_blocks.hpp"
#include "trace/live_set.hpp"
#include "trace/place.hpp"
#include "trace/python.hpp"
#include "trace/records.hpp"
#include "trace/ring.hpp"
#include "trace/stacks.hpp"

namespace cupool::trace {

namespace detail {
constinit std::atomic<bool> on{false};
}

namespace {

constexpr size_t kMostRings = 4096;
constexpr size_t kBlockContent = 32 << 10;
constexpr size_t kOut = 192 << 10;
constexpr size_t kIndexed = 512;
constexpr uint64_t kEndRoom = 4096;  // of CUPOOL_TRACE_MAX, for the last block

constinit thread_local Ring* own_ring = nullptr;
// There was no room for one; what such threads do is lost, and counted here.
constinit thread_local bool has_no_ring = false;
constinit std::atomic<uint64_t> lost_without_ring{0};
constinit std::atomic<Ring*> rings{nullptr};
constinit std::atomic<size_t> ring_count{0};

int this_thread() { return static_cast<int>(syscall(SYS_gettid)); }

bool has_ended(int thread) { return syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH; }

Ring* find_ring() {
  const PreserveErrno preserve;
  const int self = this_thread();
  for (Ring* ring = rings.load(std::memory_order_acquire); ring != nullptr; ring = ring->next) {
    int owner = ring->thread.load(std::memory_order_acquire);
    if ((owner == self || has_ended(owner)) && ring->is_empty() &&
        ring->thread.compare_exchange_strong(owner, self, std::memory_order_acq_rel)) {
      ring->is_busy = false;
      return ring;
    }
  }
  if (ring_count.fetch_add(1, std::memory_order_relaxed) >= kMostRings) return nullptr;
  void* const memory = map_pages(sizeof(Ring));
  if (memory == nullptr) return nullptr;
  auto* const ring = new (memory) Ring;
  ring->thread.store(self, std::memory_order_relaxed);
  ring->next = rings.load(std::memory_order_relaxed);
  while (!rings.compare_exchange_weak(ring->next, ring, std::memory_order_acq_rel)) {
  }
  return ring;
}

// ---- The gatherer.

constinit std::atomic<void (*)()> wake_gatherer{nullptr};

// Apart from it, so that they take no room in the library's file. Under the gatherer's lock.
alignas(64) constinit uint8_t out[kOut] = {};
struct Indexed {
  uint64_t offset;
  uint64_t time;
  uint16_t kind;
};
constinit std::array<Indexed, kIndexed> index = {};

class Gatherer {
 public:
  bool begin(const About& about, const Settings& settings) CUPOOL_EXCLUDES(lock_);
  // Whether the lock was free within a moment.
  bool gather(int* kept) CUPOOL_EXCLUDES(lock_);
  void finish() CUPOOL_EXCLUDES(lock_);
  bool end() CUPOOL_EXCLUDES(lock_);
  bool holds(uint64_t address, uint8_t kind) CUPOOL_EXCLUDES(lock_) {
    if (!enter()) return true;
    const bool found = live_.holds(address, kind);
    leave();
    return found;
  }
  bool visit_kept(Put put, void* argument) CUPOOL_EXCLUDES(lock_);
  bool visit_live(See see, void* argument) CUPOOL_EXCLUDES(lock_);
  const char* path() const CUPOOL_NO_THREAD_SAFETY_ANALYSIS { return place_.path(); }
  bool is_kept() const CUPOOL_NO_THREAD_SAFETY_ANALYSIS { return settings_.kept_bytes != 0; }
  // Whether the thread that asks is gathering: a signal handler has interrupted it.
  bool is_here() const { return gathering_thread_.load(std::memory_order_relaxed) == this_thread(); }
  void forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS;

 private:
  bool enter() CUPOOL_TRY_ACQUIRE(true, lock_);
  // Whether there is a file.
  bool is_written() const CUPOOL_REQUIRES(lock_) { return settings_.has_output && settings_.kept_bytes == 0; }
  void leave() CUPOOL_RELEASE(lock_);

  void gather_all(int* kept) CUPOOL_REQUIRES(lock_);
  void gather_ring(Ring& ring, int* kept) CUPOOL_REQUIRES(lock_);
  void follow(Event event, uint64_t time, uint32_t thread, const uint64_t* words) CUPOOL_REQUIRES(lock_);
  void write_lost(uint64_t lost, int* kept) CUPOOL_REQUIRES(lock_);
  void write_live_set(int* kept) CUPOOL_REQUIRES(lock_);
  void write_index(int* kept) CUPOOL_REQUIRES(lock_);
  // What stacks, and what they consist of, are new.
  void write_stacks(int* kept) CUPOOL_REQUIRES(lock_);
  // `put` puts one record; false: there is no room for it in a block that has room.
  template <typename PutRecord>
  bool write_record(BlockKind kind, int* kept, PutRecord&& put) CUPOOL_REQUIRES(lock_);
  void close_records() CUPOOL_REQUIRES(lock_);
  void forget_told_stacks() CUPOOL_REQUIRES(lock_);

  // Blocks are made one after the other in `out`, and written together.
  void open_block(BlockKind kind, uint64_t time, uint32_t thread, int* kept) CUPOOL_REQUIRES(lock_);
  void close_block(uint16_t flags) CUPOOL_REQUIRES(lock_);
  void close_block(size_t content, uint32_t count, uint16_t flags) CUPOOL_REQUIRES(lock_);
  void flush(int* kept) CUPOOL_REQUIRES(lock_);
  void stop(const char* why) CUPOOL_REQUIRES(lock_);
  void make_about() CUPOOL_REQUIRES(lock_);
  void write_ended(Ending why, int* kept) CUPOOL_REQUIRES(lock_);
  void end(Ending why) CUPOOL_REQUIRES(lock_);

  Lock lock_{Rank::kTrace};
  std::atomic<int> gathering_thread_{0};
  About about_ CUPOOL_GUARDED_BY(lock_);
  Settings settings_ CUPOOL_GUARDED_BY(lock_);
  Place place_ CUPOOL_GUARDED_BY(lock_);
  KeptBlocks kept_ CUPOOL_GUARDED_BY(lock_);
  LiveSet live_ CUPOOL_GUARDED_BY(lock_);
  Encoder encoder_ CUPOOL_GUARDED_BY(lock_);
  Records records_ CUPOOL_GUARDED_BY(lock_);
  BlockKind records_kind_ CUPOOL_GUARDED_BY(lock_) = BlockKind::kAbout;  // of the open block; kAbout: none
  Put sink_ CUPOOL_GUARDED_BY(lock_) = nullptr;  // who gets the blocks instead of file and memory
  void* sink_argument_ CUPOOL_GUARDED_BY(lock_) = nullptr;
  BlockHead head_ CUPOOL_GUARDED_BY(lock_);  // of the open block
  uint64_t sequence_ CUPOOL_GUARDED_BY(lock_) = 0;
  uint64_t began_ CUPOOL_GUARDED_BY(lock_) = 0;
  uint64_t round_ CUPOOL_GUARDED_BY(lock_) = 0;         // when this gathering began
  uint64_t round_before_ CUPOOL_GUARDED_BY(lock_) = 0;  // and the one before
  uint64_t since_live_set_ CUPOOL_GUARDED_BY(lock_) = 0;
  uint64_t live_set_bytes_ CUPOOL_GUARDED_BY(lock_) = 0;
  uint64_t last_index_ CUPOOL_GUARDED_BY(lock_) = 0;
  size_t indexed_ CUPOOL_GUARDED_BY(lock_) = 0;
  size_t used_ CUPOOL_GUARDED_BY(lock_) = 0;
};

constinit Gatherer gatherer;

CUPOOL_AFTER_FORK(trace_after_fork, [] { gatherer.forget_after_fork(); });

bool Gatherer::enter() {
  const int self = this_thread();
  if (gathering_thread_.load(std::memory_order_relaxed) == self || !lock_.try_lock_for_a_moment())
    return false;
  gathering_thread_.store(self, std::memory_order_relaxed);
  return true;
}

void Gatherer::leave() {
  gathering_thread_.store(0, std::memory_order_relaxed);
  lock_.unlock();
}

void Gatherer::forget_after_fork() {
  lock_.reset_after_fork();
  gathering_thread_.store(0, std::memory_order_relaxed);
  detail::on.store(false, std::memory_order_relaxed);
  rings.store(nullptr, std::memory_order_relaxed);
  ring_count.store(0, std::memory_order_relaxed);
  own_ring = nullptr;
  has_no_ring = false;
  lost_without_ring.store(0, std::memory_order_relaxed);
  kept_.forget_after_fork();
  live_.clear();
  settings_ = {};
}

bool Gatherer::begin(const About& about, const Settings& settings) {
  Guard hold(lock_);
  about_ = about;
  settings_ = settings;
  if (settings.kept_bytes != 0) {
    if (!kept_.begin(settings.kept_bytes)) return false;
    settings_.live_set_every = settings.kept_bytes / 4;
  } else if (settings.has_output) {
    place_.begin(settings.path, settings.device, settings.inode);
  }
  sequence_ = 0;
  used_ = indexed_ = 0;
  since_live_set_ = live_set_bytes_ = last_index_ = 0;
  live_.clear();
  forget_told_stacks();
  // What threads told of an earlier trace when that had ended.
  for (Ring* ring = rings.load(std::memory_order_acquire); ring != nullptr; ring = ring->next) {
    ring->mark();
    ring->gather([](Event, uint64_t, const uint64_t*) { return true; });
    ring->take_lost();
  }
  began_ = round_ = round_before_ = now_ns();
  if (is_written()) make_about();
  detail::on.store(true, std::memory_order_release);
  if (is_written()) flush(nullptr);
  return true;
}

// ---- Blocks.

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
  detail::on.store(false, std::memory_order_release);
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

// ---- Gathering.

// Keeps the live set.
void Gatherer::follow(Event event, uint64_t time, uint32_t thread, const uint64_t* words) {
  if (event == Event::kAllocated) {
    told::Allocated what;
    memcpy(static_cast<void*>(&what), words, sizeof what);
    live_.allocated(time, thread, what);
  } else if (event == Event::kLive) {
    told::Live live;
    memcpy(static_cast<void*>(&live), words, sizeof live);
    told::Allocated what{};
    what.address = live.address;
    what.asked = live.asked;
    what.more = live.more;
    what.stack = live.stack;
    what.call = live.call;
    what.kind = live.kind;
    what.context = live.context;
    what.device = live.device;
    live_.allocated(time, static_cast<uint32_t>(live.thread), what);
  } else if (event == Event::kFreed) {
    told::Freed what;
    memcpy(static_cast<void*>(&what), words, sizeof what);
    live_.freed(time, what);
  } else if (event == Event::kContextEnded) {
    told::ContextEnded what;
    memcpy(static_cast<void*>(&what), words, sizeof what);
    live_.context_ended(time, what.context);
  }
}

void Gatherer::gather_ring(Ring& ring, int* kept) {
  const auto thread = static_cast<uint32_t>(ring.thread.load(std::memory_order_acquire));
  bool is_open = false;
  bool is_full = true;
  for (size_t turns = 0; is_full && turns <= Ring::kWords * sizeof(uint64_t) / kBlockContent; ++turns) {
    is_full = false;
    ring.gather([&](Event event, uint64_t time, const uint64_t* words) {
      if (!is_open) open_block(BlockKind::kEvents, time, thread, kept);
      is_open = true;
      if (!encoder_.add(event, time, words)) {
        is_full = true;
        return false;
      }
      follow(event, time, thread, words);
      return true;
    });
    if (is_full) {
      close_block(0);
      is_open = false;
    }
  }
  if (const uint64_t lost = ring.take_lost(); lost != 0) {
    const told::Lost what{lost};
    const uint64_t now = now_ns();
    if (!is_open) open_block(BlockKind::kEvents, now, thread, kept);
    is_open = true;
    encoder_.add(Event::kLost, now, reinterpret_cast<const uint64_t*>(&what));
  }
  if (is_open) close_block(0);
}

void Gatherer::write_lost(uint64_t lost, int* kept) {
  const told::Lost what{lost};
  const uint64_t now = now_ns();
  open_block(BlockKind::kEvents, now, 0, kept);
  encoder_.add(Event::kLost, now, reinterpret_cast<const uint64_t*>(&what));
  close_block(0);
}

void Gatherer::gather_all(int* kept) {
  round_before_ = round_;
  round_ = now_ns();
  for (Ring* ring = rings.load(std::memory_order_acquire); ring != nullptr; ring = ring->next) ring->mark();
  if (is_written()) write_stacks(kept);
  for (Ring* ring = rings.load(std::memory_order_acquire); ring != nullptr; ring = ring->next) {
    if (!ring->is_empty()) gather_ring(*ring, kept);
  }
  if (const uint64_t lost = lost_without_ring.exchange(0, std::memory_order_relaxed); lost != 0)
    write_lost(lost, kept);
  live_.forget_frees(round_before_);
  if (settings_.has_output && since_live_set_ >= std::max(settings_.live_set_every, 8 * live_set_bytes_))
    write_live_set(kept);
  if (indexed_ > kIndexed / 2) write_index(kept);
  flush(kept);
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

void Gatherer::write_stacks(int* kept) {
  stack_tables.modules.tell_new(
      [&](uint64_t number, const Modules::Module& module) {
        const std::string_view build_id(reinterpret_cast<const char*>(module.build_id),
                                        module.build_id_bytes);
        return write_record(BlockKind::kModules, kept, [&](Records& records) {
          return records.module(
              {number, module.map, module.begin, module.end, module.bias, build_id, module.path});
        });
      },
      [&](uint64_t number, uint64_t map) {
        return write_record(BlockKind::kModules, kept,
                            [&](Records& records) { return records.gone(number, map); });
      });
  stack_tables.texts.tell_new([&](uint32_t number, const WordTable::Found& found) {
    return write_record(BlockKind::kStacks, kept,
                        [&](Records& records) { return records.text(number, text_of(found)); });
  });
  stack_tables.places.tell_new([&](uint32_t number, const WordTable::Found& found) {
    return write_record(BlockKind::kStacks, kept, [&](Records& records) {
      return records.place(number, found.words[0], found.words[1], found.words[2]);
    });
  });
  stack_tables.stacks.tell_new([&](uint32_t number, const WordTable::Found& found) {
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

void Gatherer::write_live_set(int* kept) {
  since_live_set_ = 0;
  uint16_t flags = kFirstPart;
  open_block(BlockKind::kLive, round_, 0, kept);
  live_.for_each([&](const LiveSet::Item& item) {
    const told::Live what{
        item.address, item.asked,   item.more,   item.stack,     item.call, static_cast<Kind>(item.kind),
        item.thread,  item.context, item.device, sample_period()};
    if (encoder_.add(Event::kLive, item.time, reinterpret_cast<const uint64_t*>(&what))) return;
    close_block(flags);
    flags = 0;
    open_block(BlockKind::kLive, round_, 0, kept);
    encoder_.add(Event::kLive, item.time, reinterpret_cast<const uint64_t*>(&what));
  });
  // What was freed lately, too: its allocation may be gathered only now.
  live_.for_each_gone([&](const LiveSet::Item& item) {
    told::Freed what{};
    what.address = item.address;
    what.kind = static_cast<Kind>(item.kind);
    if (encoder_.add(Event::kFreed, item.time, reinterpret_cast<const uint64_t*>(&what))) return;
    close_block(flags);
    flags = 0;
    open_block(BlockKind::kLive, round_, 0, kept);
    encoder_.add(Event::kFreed, item.time, reinterpret_cast<const uint64_t*>(&what));
  });
  close_block(flags | kLastPart);
  live_set_bytes_ = since_live_set_;
  since_live_set_ = 0;
  if (settings_.kept_bytes == 0) write_index(kept);
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

bool Gatherer::gather(int* kept) {
  if (!is_on()) return true;
  if (!enter()) return false;
  if (is_on()) gather_all(kept);
  leave();
  return true;
}

void Gatherer::end(Ending why) {
  if (!is_on()) return;
  gather_all(nullptr);
  if (is_on() && is_written()) {
    write_index(nullptr);
    flush(nullptr);
    if (is_on()) write_ended(why, nullptr);
  }
  detail::on.store(false, std::memory_order_release);
}

bool Gatherer::end() {
  if (!enter()) return false;
  end(Ending::kAsked);
  leave();
  return true;
}

void Gatherer::finish() {
  constexpr int kMostTries = 200;
  for (int i = 0; i < kMostTries && is_on() && !is_here(); ++i) {
    if (!enter()) continue;
    if (is_on()) {
      gather_all(nullptr);
      if (is_on() && is_written()) {
        write_index(nullptr);
        flush(nullptr);
        if (is_on()) write_ended(Ending::kProgram, nullptr);
      }
      detail::on.store(false, std::memory_order_release);
    }
    end(Ending::kProgram);
    leave();
  }
}

bool Gatherer::visit_kept(Put put, void* argument) {
  if (!is_kept() || !enter()) return false;
  if (is_on()) gather_all(nullptr);
  // The head is not in the ring: it would be the first to make room.
  const uint64_t sequence = sequence_;
  used_ = 0;
  sequence_ = 0;
  const uint64_t since_live_set = since_live_set_;
  sink_ = put;
  sink_argument_ = argument;
  make_about();
  forget_told_stacks();
  write_stacks(nullptr);
  flush(nullptr);
  sink_ = nullptr;
  sequence_ = sequence;
  since_live_set_ = since_live_set;
  kept_.for_each([&](const uint8_t* block, size_t bytes) { put(block, bytes, argument); });
  leave();
  return true;
}

bool Gatherer::visit_live(See see, void* argument) {
  if (!is_on() || !enter()) return false;
  gather_all(nullptr);
  const bool is_known = live_.is_complete();
  if (is_known) live_.for_each([&](const LiveSet::Item& item) { see(item, argument); });
  leave();
  return is_known;
}

// The file thread gathers, if there is one; else, or if it does not come, this thread does. (Under a new
// filter of system calls nothing is opened.)
void make_room(Ring& ring, size_t words) {
  constexpr int kMostTurns = 200;
  constexpr uint64_t kMostPatience = 1'000'000'000;
  if (ring.is_given_up) return;
  const PreserveErrno preserve;
  const auto wake = wake_gatherer.load(std::memory_order_relaxed);
  if (wake != nullptr) wake();
  for (int turn = 0; wake != nullptr && turn < kMostTurns && !ring.has_room(words); ++turn)
    Lock::wait_a_little(turn);
  // The gatherer may stand in a write to a disk that hangs.
  const uint64_t before = now_ns();
  while (!ring.has_room(words) && !knows_new_filter() && now_ns() - before < kMostPatience)
    gatherer.gather(nullptr);
  ring.is_given_up = !ring.has_room(words);
}

}  // namespace

void set_waker(void (*wake)()) { wake_gatherer.store(wake, std::memory_order_relaxed); }

bool begin(const About& about, const Settings& settings) { return gatherer.begin(about, settings); }

void gather_now(int* kept) {
  // So that what is loaded and unloaded past our doors is known soon.
  if (is_on() && stack_tables.modules.map() != 0) {
    const uint32_t before = stack_tables.modules.map();
    // (The loader's big lock is held while libraries are loaded: it is asked for a good reason only.)
    if (stack_tables.modules.look() != before && stack_tables.modules.has_path_with("python"))
      look_for_python();
  }
  gatherer.gather(kept);
}

bool end() { return gatherer.end(); }

void finish() { gatherer.finish(); }

void abandon() { detail::on.store(false, std::memory_order_release); }

bool visit_kept(Put put, void* argument) { return gatherer.visit_kept(put, argument); }

bool visit_live(See see, void* argument) { return gatherer.visit_live(see, argument); }

bool holds(uint64_t address, uint8_t kind) { return gatherer.holds(address, kind); }

const char* path() { return gatherer.path(); }

bool is_kept() { return is_on() && gatherer.is_kept(); }

void detail::record(Event event, uint64_t time, const uint64_t* words, size_t count, From from) {
  if (!is_on()) [[unlikely]]
    return;
  Ring* ring = own_ring;
  if (ring == nullptr) [[unlikely]] {
    if (!has_no_ring) ring = own_ring = find_ring();
    has_no_ring = ring == nullptr;
    if (has_no_ring) {
      lost_without_ring.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  if (ring->is_busy) [[unlikely]]
    return ring->lose();
  ring->is_busy = true;
  std::atomic_signal_fence(std::memory_order_acq_rel);
  if (!ring->has_room(count) && from == From::kEntry) [[unlikely]]
    make_room(*ring, count);
  if (ring->has_room(count)) [[likely]] {
    ring->put(event, time, words, count);
    ring->is_given_up = false;
  } else {
    ring->lose();
  }
  if (ring->is_half_full()) [[unlikely]] {
    const PreserveErrno preserve;
    if (const auto wake = wake_gatherer.load(std::memory_order_relaxed)) wake();
  }
  std::atomic_signal_fence(std::memory_order_acq_rel);
  ring->is_busy = false;
}

}  // namespace cupool::trace
