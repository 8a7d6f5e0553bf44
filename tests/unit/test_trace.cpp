// Events through the encoder and back through the reader, and the recorder with a file in a scratch
// directory.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tools/trace_lines.hpp"
#include "tools/trace_live.hpp"
#include "tools/trace_reader.hpp"
#include "trace/encoder.hpp"
#include "trace/live_set.hpp"
#include "trace/recorder.hpp"
#include "trace/rings.hpp"
#include "trace_file.hpp"

namespace {

namespace trace = cupool::trace;
namespace told = cupool::trace::told;
using cupool::test::about;
using cupool::test::bytes_of;
using cupool::test::Scratch;
using cupool::test::settings_for;
using cupool::tools::Happened;
using cupool::tools::TraceLive;
using cupool::tools::TraceReader;

struct Read {
  bool begins = false;
  bool whole = false;
  bool cut = false;
  std::string error;
  std::vector<Happened> events;
  cupool::tools::TraceAbout about;
  uint64_t live_sets = 0;
  uint64_t event_bytes = 0;
};
Read read_bytes(const std::string& bytes) {
  Read out;
  std::string copy = bytes.empty() ? "?" : bytes;
  std::FILE* const file = fmemopen(copy.data(), copy.size(), "r");
  if (bytes.empty()) fseek(file, 0, SEEK_END);
  TraceReader reader(file);
  out.begins = reader.begin();
  if (out.begins) out.whole = reader.read([&](const Happened& one) { out.events.push_back(one); });
  out.error = reader.error();
  out.cut = reader.is_cut();
  out.about = reader.about();
  out.live_sets = reader.live_sets();
  out.event_bytes = reader.event_bytes();
  fclose(file);
  return out;
}
told::Allocated block(uint64_t address, uint64_t asked) {
  told::Allocated what{};
  what.address = address;
  what.asked = asked;
  what.context = 0x5555;
  return what;
}
told::Freed gone(uint64_t address) {
  told::Freed what{};
  what.address = address;
  return what;
}
size_t count(const Read& read, const char* name) {
  const size_t event = read.about.find_event(name);
  return static_cast<size_t>(std::count_if(read.events.begin(), read.events.end(),
                                           [&](const Happened& one) { return one.event == event; }));
}

}  // namespace

TEST_CASE("the checksum of a block is the one that the world calls CRC-32C") {
  CHECK(trace::crc32c(0, "123456789", 9) == 0xE3069283);
  CHECK(trace::crc32c(trace::crc32c(0, "1234", 4), "56789", 5) == 0xE3069283);
}

TEST_CASE("any event of any values comes back as it was told") {
  Scratch scratch;
  const std::string path = scratch.file("t");
  trace::Settings settings = settings_for(path);
  REQUIRE(trace::begin(about(), settings));
  std::mt19937_64 random(7);
  struct Expected {
    size_t event;
    uint64_t time;
    std::vector<uint64_t> words;
  };
  std::vector<Expected> all;
  uint64_t time = cupool::now_ns() - 1'000'000'000;  // so that the end comes last
  for (int i = 0; i < 20000; ++i) {
    const size_t event = random() % (trace::kEvents - 1);
    const trace::EventInfo& info = trace::kEventTable[event];
    Expected one{event, time += 1 + random() % 5000, {}};
    for (size_t field = 0; field < info.count; ++field) {
      if (info.fields[field].type == trace::FieldType::kText) {
        trace::Text text(std::string(random() % 70, 'x'));
        uint64_t words[8];
        memcpy(words, &text, sizeof text);
        one.words.insert(one.words.end(), words, words + 8);
      } else {
        one.words.push_back(random() % 3 == 0 ? 0 : random() >> random() % 64);
      }
    }
    trace::detail::record(static_cast<trace::Event>(event), one.time, one.words.data(), one.words.size(),
                          trace::detail::From::kEntry);
    all.push_back(one);
  }
  trace::finish();
  const Read read = read_bytes(bytes_of(path));
  REQUIRE(read.whole);
  REQUIRE(read.events.size() == all.size() + 1);  // the end is told, too
  CHECK(read.about.program == "a program");
  CHECK(read.about.calls == std::vector<std::string>{"cuMemAlloc_v2", "cuMemFree_v2", "cuCtxSynchronize"});
  bool same = true;
  for (size_t i = 0; i < all.size(); ++i) {
    const trace::EventInfo& info = trace::kEventTable[all[i].event];
    same = same && read.events[i].event == all[i].event && read.events[i].time == all[i].time;
    const uint64_t* word = all[i].words.data();
    for (size_t field = 0; field < info.count; ++field) {
      if (info.fields[field].type == trace::FieldType::kText) {
        same = same && read.events[i].text == reinterpret_cast<const char*>(word);
        word += 8;
      } else {
        same = same && read.events[i].values[field] == *word++;
      }
    }
  }
  CHECK(same);
}

TEST_CASE("a pair of a usual program takes at most sixteen bytes an event") {
  Scratch scratch;
  const std::string path = scratch.file("t");
  REQUIRE(trace::begin(about(), settings_for(path)));
  std::mt19937_64 random(7);
  std::vector<uint64_t> held;
  uint64_t time = cupool::now_ns();
  for (int i = 0; i < 20000; ++i) {
    time += random() % 20000;
    if (held.size() < 500 || random() % 2 == 0) {
      held.push_back(0x7f0000000000 + 512 * (random() % (1 << 24)));
      trace::record(block(held.back(), random() % (1 << 22)), time);
    } else {
      std::swap(held[random() % held.size()], held.back());
      trace::record(gone(held.back()), time);
      held.pop_back();
    }
  }
  trace::finish();
  const Read read = read_bytes(bytes_of(path));
  REQUIRE(read.whole);
  CHECK(read.event_bytes / read.events.size() <= 16);
}

TEST_CASE("events of several threads come in the order of their times") {
  Scratch scratch;
  const std::string path = scratch.file("t");
  REQUIRE(trace::begin(about(), settings_for(path)));
  constexpr uint64_t kEach = 10000;
  std::atomic<bool> done{false};
  std::thread gatherer([&] {
    int kept = -1;
    while (!done) {
      trace::gather_now(&kept);
      std::this_thread::yield();
    }
    if (kept >= 0) close(kept);
  });
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 3; ++i) {
    threads.emplace_back([i] {
      for (uint64_t j = 0; j < kEach; ++j) {
        trace::record(block((i + 1) << 40 | (j + 1) << 9, j + 1));
        trace::record(gone((i + 1) << 40 | (j + 1) << 9));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  gatherer.join();
  trace::finish();
  const Read read = read_bytes(bytes_of(path));
  REQUIRE(read.whole);
  CHECK(count(read, "allocated") == 3 * kEach);
  CHECK(count(read, "freed") == 3 * kEach);
  CHECK(count(read, "lost") == 0);
  CHECK(std::is_sorted(read.events.begin(), read.events.end(),
                       [](const Happened& a, const Happened& b) { return a.time < b.time; }));
}

TEST_CASE("a thread that finds the file late writes it, or looks again soon while another one does") {
  Scratch scratch;
  const std::string path = scratch.file("t");
  REQUIRE(trace::begin(about(), settings_for(path)));
  trace::record(block(1 << 20, 100));
  // Under the lock of who writes.
  trace::visit_live(
      [](const trace::LiveSet::Item&, void*) {
        trace::gathering_due.store(0);
        trace::record(block(2 << 20, 100));
      },
      nullptr);
  CHECK(trace::gathering_due.load() != 0);
  CHECK(trace::gathering_due.load() <= cupool::now_ns() + trace::kBetweenLooks);
  CHECK(count(read_bytes(bytes_of(path)), "allocated") == 1);
  trace::gathering_due.store(0);
  trace::record(block(3 << 20, 100));
  CHECK(count(read_bytes(bytes_of(path)), "allocated") == 3);
  trace::finish();
}

TEST_CASE("what is told under a lock finds room behind what entry points told") {
  Scratch scratch;
  const std::string path = scratch.file("t");
  REQUIRE(trace::begin(about(), settings_for(path)));
  // (Nobody gathers but who finds no room.)
  trace::gathering_due.store(~uint64_t{0});
  constexpr uint64_t kTurns = 600;
  constexpr uint64_t kInside = 150;
  for (uint64_t turn = 1; turn <= kTurns; ++turn) {
    trace::record(block(turn << 20, 100));
    for (uint64_t i = 0; i < kInside; ++i) trace::record_inside(told::OutOfMemory{i, 0});
    trace::gathering_due.store(~uint64_t{0});
  }
  trace::finish();
  const Read read = read_bytes(bytes_of(path));
  CHECK(count(read, "out_of_memory") == kTurns * kInside);
  CHECK(count(read, "lost") == 0);
}

TEST_CASE("a live set is what the events before it leave") {
  Scratch scratch;
  const std::string path = scratch.file("t");
  trace::Settings settings = settings_for(path);
  settings.live_set_every = 20000;
  REQUIRE(trace::begin(about(), settings));
  std::mt19937_64 random(3);
  std::map<uint64_t, uint64_t> held;
  for (int i = 0; i < 40000; ++i) {
    const uint64_t address = 512 * (1 + random() % 3000);
    if (held.erase(address) != 0) {
      trace::record(gone(address));
    } else {
      held[address] = 1 + random() % 1000;
      trace::record(block(address, held[address]));
    }
  }
  trace::finish();
  const std::string bytes = bytes_of(path);
  const Read whole = read_bytes(bytes);
  REQUIRE(whole.whole);
  REQUIRE(whole.live_sets > 1);
  // A reader that begins at the last live set ends with the same as one that has read everything.
  size_t head_bytes = 0;
  size_t last = 0;
  for (size_t at = 0; at < bytes.size();) {
    trace::BlockHead head;
    memcpy(&head, bytes.data() + at, sizeof head);
    if (at == 0) head_bytes = sizeof head + head.bytes;
    if (head.kind == static_cast<uint16_t>(trace::BlockKind::kLive) && (head.flags & trace::kFirstPart) != 0)
      last = at;
    at += sizeof head + head.bytes;
  }
  const Read late = read_bytes(bytes.substr(0, head_bytes) + bytes.substr(last));
  REQUIRE(late.whole);
  CHECK(late.events.size() < whole.events.size());
  for (const Read* const read : {&whole, &late}) {
    TraceLive live(read->about);
    for (const Happened& one : read->events) live.see(one);
    uint64_t asked = 0;
    for (const auto& [address, size] : held) asked += size;
    CHECK(live.counted(0).blocks == held.size());
    CHECK(live.counted(0).asked == asked);
  }
}

TEST_CASE("a free that is gathered before its allocation ends it nevertheless") {
  trace::LiveSet live;
  live.freed(20, gone(512));
  live.allocated(10, 1, block(512, 100));
  CHECK(live.count() == 0);
  live.allocated(30, 1, block(512, 100));
  CHECK(live.count() == 1);
  live.context_ended(40, 0x5555);
  CHECK(live.count() == 0);
}

TEST_CASE("of a freed block both calls are known in whatever order they are gathered") {
  for (const bool free_first : {false, true}) {
    trace::LiveSet live;
    told::Allocated made = block(512, 100);
    made.stack = 7;
    told::Freed over = gone(512);
    over.stack = 8;
    if (free_first) live.freed(20, over);
    live.allocated(10, 1, made);
    if (!free_first) live.freed(20, over);
    // Of a life before.
    live.freed(8, gone(512));
    live.allocated(6, 2, block(512, 900));
    trace::LiveSet::Item found;
    REQUIRE(live.find_around(512, &found));
    CHECK_FALSE(found.is_live);
    CHECK_FALSE(found.went_with_context);
    CHECK(found.asked == 100);
    CHECK(found.stack == 7);
    CHECK(found.freed_stack == 8);
    CHECK(live.count() == 0);
  }
}

TEST_CASE("a block that ended with its context was not freed") {
  trace::LiveSet live;
  live.allocated(10, 1, block(512, 100));
  live.context_ended(20, 0x5555);
  trace::LiveSet::Item found;
  REQUIRE(live.find_around(512, &found));
  CHECK_FALSE(found.is_live);
  CHECK(found.went_with_context);
  live.allocated(30, 1, block(512, 100));
  live.freed(40, gone(512));
  REQUIRE(live.find_around(512, &found));
  CHECK_FALSE(found.went_with_context);
}

TEST_CASE("a trace that is kept in memory holds the last of it and begins with a live set") {
  trace::Settings settings;
  settings.kept_bytes = 256 << 10;
  REQUIRE(trace::begin(about(), settings));
  for (uint64_t i = 1; i <= 100; ++i) trace::record(block(1 << 30 | i << 9, 1000));
  for (uint64_t i = 1; i <= 100000; ++i) {
    trace::record(block(i << 9, i));
    trace::record(gone(i << 9));
  }
  std::string bytes;
  REQUIRE(trace::visit_kept(
      [](const void* data, size_t size, void* out) {
        static_cast<std::string*>(out)->append(static_cast<const char*>(data), size);
      },
      &bytes));
  trace::finish();
  CHECK(bytes.size() < (256 << 10) + (32 << 10));
  const Read read = read_bytes(bytes);
  REQUIRE(read.whole);
  CHECK(read.events.size() < 200000);
  CHECK(read.events.size() > 5000);
  TraceLive live(read.about);
  for (const Happened& one : read.events) live.see(one);
  CHECK(live.counted(0).blocks == 100);
  CHECK(read.events.back().values[0] == 100000 << 9);
}

TEST_CASE("a trace ends at its largest size, and says so in itself") {
  Scratch scratch;
  const std::string path = scratch.file("t");
  trace::Settings settings = settings_for(path);
  settings.most_bytes = 200 << 10;
  REQUIRE(trace::begin(about(), settings));
  for (uint64_t i = 1; trace::is_on() && i < 1000000; ++i) trace::record(block(i << 20, i * 777));
  CHECK_FALSE(trace::is_on());
  const std::string bytes = bytes_of(path);
  CHECK(bytes.size() <= 200 << 10);
  const Read read = read_bytes(bytes);
  CHECK(read.whole);
  CHECK(count(read, "ended") == 1);
}

TEST_CASE("a limit on the size of files ends the trace and leaves whole blocks") {
  Scratch scratch;
  const std::string path = scratch.file("t");
  REQUIRE(trace::begin(about(), settings_for(path)));
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{300 << 10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  for (uint64_t i = 1; trace::is_on() && i < 1000000; ++i) trace::record(block(i << 20, i * 777));
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK_FALSE(trace::is_on());
  const Read read = read_bytes(bytes_of(path));
  CHECK(read.whole);
  CHECK_FALSE(read.cut);
  CHECK(read.events.size() > 1000);
}

TEST_CASE("a trace whose file was removed ends, and makes no other") {
  Scratch scratch;
  const std::string path = scratch.file("t");
  REQUIRE(trace::begin(about(), settings_for(path)));
  trace::record(block(512, 1));
  std::filesystem::remove(path);
  int kept = -1;
  trace::gather_now(&kept);
  CHECK_FALSE(trace::is_on());
  CHECK(std::filesystem::is_empty(scratch.folder));
}

TEST_CASE("a trace whose file somebody cuts ends") {
  Scratch scratch;
  const std::string path = scratch.file("t");
  REQUIRE(trace::begin(about(), settings_for(path)));
  REQUIRE(truncate(path.c_str(), 0) == 0);
  trace::record(block(512, 1));
  int kept = -1;
  trace::gather_now(&kept);
  CHECK_FALSE(trace::is_on());
  CHECK(bytes_of(path).empty());
}

TEST_CASE("readers refuse a newer version, and files that are none, in a sentence") {
  Scratch scratch;
  const std::string path = scratch.file("t");
  REQUIRE(trace::begin(about(), settings_for(path)));
  for (uint64_t i = 1; i < 2000; ++i) trace::record(block(i << 9, i));
  trace::finish();
  const std::string good = bytes_of(path);
  REQUIRE(read_bytes(good).whole);

  std::string newer = good;
  newer[sizeof(trace::BlockHead)] = 2;
  trace::BlockHead head;
  memcpy(&head, newer.data(), sizeof head);
  head.checksum = trace::checksum_of(head, newer.data() + sizeof head);
  memcpy(newer.data(), &head, sizeof head);
  CHECK(read_bytes(newer).error.find("version 2") != std::string::npos);

  CHECK(read_bytes("").error == "it is empty");
  CHECK(read_bytes(std::string(5000, 'x')).error == "it is no trace of cupool");
  CHECK(read_bytes(good.substr(0, 100)).error == "it is cut before its head ends");

  const Read cut = read_bytes(good.substr(0, good.size() - 10));
  CHECK(cut.whole);
  CHECK(cut.cut);
  std::string damaged = good;
  damaged[damaged.size() / 2] ^= 1;
  const Read hurt = read_bytes(damaged);
  CHECK(hurt.begins);
  CHECK_FALSE(hurt.whole);
  CHECK(hurt.error.find("the checksum of the block there is wrong") != std::string::npos);
}

TEST_CASE("a trace with any content at all ends in a sentence or is read") {
  Scratch scratch;
  const std::string path = scratch.file("t");
  trace::Settings settings = settings_for(path);
  settings.live_set_every = 4000;
  REQUIRE(trace::begin(about(), settings));
  for (uint64_t i = 1; i < 3000; ++i) trace::record(block(i << 9, i));
  trace::finish();
  const std::string good = bytes_of(path);
  std::mt19937_64 random(11);
  for (int turn = 0; turn < 600; ++turn) {
    std::string bad = good;
    for (uint64_t i = random() % 8; i-- > 0;) bad[random() % bad.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    // Checksums are made right again, so that what lies behind them is tried, too.
    for (size_t at = 0; at + sizeof(trace::BlockHead) <= bad.size();) {
      trace::BlockHead head;
      memcpy(&head, bad.data() + at, sizeof head);
      if (head.bytes > bad.size() - at - sizeof head) break;
      head.checksum = trace::checksum_of(head, bad.data() + at + sizeof head);
      memcpy(bad.data() + at, &head, sizeof head);
      at += sizeof head + head.bytes;
    }
    const Read read = read_bytes(bad);
    if (!(read.begins && read.whole)) CHECK_FALSE(read.error.empty());
    if (!read.begins) continue;
    TraceLive live(read.about);
    std::string line;
    for (const Happened& one : read.events) {
      live.see(one);
      line.clear();
      if (turn % 50 == 0) cupool::tools::print_event(read.about, one, read.about.monotonic, &line);
    }
  }
}
