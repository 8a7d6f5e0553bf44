// Traces of all events with stacks and modules, damaged in every way and with checksums made right again: a
// reader ends in a sentence or reads on, and takes no more memory and no more events than the file has bytes
// for. CUPOOL_FUZZ_TURNS in the environment makes it go on for longer.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "tools/trace_lines.hpp"
#include "tools/trace_live.hpp"
#include "tools/trace_reader.hpp"
#include "trace/recorder.hpp"
#include "trace/records.hpp"
#include "trace_file.hpp"

// All memory that this program takes, and the most of it.
namespace {
size_t taken = 0;
size_t most_taken = 0;
constexpr size_t kNote = 16;

void* take(size_t bytes) {
  auto* const at = static_cast<char*>(malloc(bytes + kNote));
  if (at == nullptr) abort();
  memcpy(at, &bytes, sizeof bytes);
  taken += bytes;
  most_taken = taken > most_taken ? taken : most_taken;
  return at + kNote;
}
void give(void* memory) {
  if (memory == nullptr) return;
  char* const at = static_cast<char*>(memory) - kNote;
  size_t bytes = 0;
  memcpy(&bytes, at, sizeof bytes);
  taken -= bytes;
  free(at);
}
}  // namespace
void* operator new(size_t bytes) { return take(bytes); }
void* operator new[](size_t bytes) { return take(bytes); }
void operator delete(void* memory) noexcept { give(memory); }
void operator delete[](void* memory) noexcept { give(memory); }
void operator delete(void* memory, size_t) noexcept { give(memory); }
void operator delete[](void* memory, size_t) noexcept { give(memory); }

namespace {

namespace trace = cupool::trace;
using cupool::test::about;
using cupool::test::bytes_of;
using cupool::test::Scratch;
using cupool::test::settings_for;
using cupool::tools::Happened;
using cupool::tools::TraceLive;
using cupool::tools::TraceReader;

constexpr size_t kFixed = 8 << 20;  // what a reader may take for any file
constexpr size_t kPerByte = 200;

// Blocks of stacks and modules, as the library makes them.
std::string stacks() {
  std::vector<uint8_t> room(64 << 10);
  std::string out;
  const auto add = [&](trace::BlockKind kind, const trace::Records& records) {
    trace::BlockHead head;
    head.kind = static_cast<uint16_t>(kind);
    head.bytes = static_cast<uint32_t>(records.size());
    head.count = records.count();
    head.checksum = trace::checksum_of(head, room.data());
    out.append(reinterpret_cast<const char*>(&head), sizeof head);
    out.append(reinterpret_cast<const char*>(room.data()), records.size());
  };
  trace::Records records;
  records.begin(room);
  for (uint64_t i = 1; i < 20; ++i)
    records.module({i, i, i << 32, (i << 32) + 4096, 0, "\x01\x02", "/lib/a.so"});
  records.gone(3, 30);
  add(trace::BlockKind::kModules, records);
  records.begin(room);
  records.text(1, "train");
  records.place(1, 1, 1, 17);
  for (uint64_t i = 1; i < 100; ++i) {
    const uint64_t frames[] = {(i % 20 << 32) + i, trace::kIsPlace | 1, i << 8};
    records.stack(i, i % 30, frames);
  }
  add(trace::BlockKind::kStacks, records);
  return out;
}

// Events of every sort, live sets and indices.
std::string some_trace(std::mt19937_64& random) {
  Scratch scratch;
  const std::string path = scratch.file("t");
  trace::Settings settings = settings_for(path);
  settings.live_set_every = 8000;
  REQUIRE(trace::begin(about(), settings));
  for (int i = 0; i < 3000; ++i) {
    const size_t event = random() % (trace::kEvents - 1);
    uint64_t words[trace::kMostWords] = {};
    for (uint64_t& word : words) word = random() >> random() % 64;
    words[0] = random() % 512 << 9;
    size_t count = 0;
    for (size_t field = 0; field < trace::kEventTable[event].count; ++field)
      count += trace::words_of(trace::kEventTable[event].fields[field].type);
    trace::detail::record(static_cast<trace::Event>(event), cupool::now_ns(), words, count,
                          trace::detail::From::kEntry);
  }
  trace::finish();
  return bytes_of(path);
}

// Some bytes become others, numbers grow huge, pieces are left out or come twice; the end may be missing.
std::string damaged(const std::string& good, std::mt19937_64& random) {
  std::string bad = good;
  for (uint64_t i = 1 + random() % 8; i-- > 0;) {
    const size_t at = random() % bad.size();
    switch (random() % 5) {
      case 0:
        bad[at] = static_cast<char>(random());
        break;
      case 1:
        bad.replace(at, std::min<size_t>(9, bad.size() - at), std::min<size_t>(9, bad.size() - at), '\xFF');
        break;
      case 2:
        bad.erase(at, random() % 64);
        break;
      case 3:
        bad.insert(random() % bad.size(), bad.substr(at, random() % 4096));
        break;
      default:
        bad[at] = static_cast<char>(bad[at] ^ 1 << random() % 8);
    }
    if (bad.empty()) bad = good;
  }
  if (random() % 8 == 0) bad.resize(1 + random() % bad.size());
  return bad;
}

// So that what lies behind them is tried, too. A head that says more than there is gets what there is.
void mend(std::string* bytes) {
  for (size_t at = 0; at + sizeof(trace::BlockHead) <= bytes->size();) {
    trace::BlockHead head;
    memcpy(&head, bytes->data() + at, sizeof head);
    const size_t left = bytes->size() - at - sizeof head;
    if (head.bytes > left) return;
    head.magic = trace::kMagic;
    head.checksum = trace::checksum_of(head, bytes->data() + at + sizeof head);
    memcpy(bytes->data() + at, &head, sizeof head);
    at += sizeof head + head.bytes;
  }
}

void read_all(std::string bytes, uint64_t* events) {
  std::FILE* const file = fmemopen(bytes.data(), bytes.size(), "r");
  {
    TraceReader reader(file);
    const bool begins = reader.begin();
    bool is_whole = begins;
    if (begins) {
      TraceLive live(reader.about());
      std::string line;
      is_whole = reader.read([&](const Happened& happened) {
        ++*events;
        live.see(happened);
        line.clear();
        cupool::tools::print_event(reader.about(), happened, reader.began(), &line);
      });
      for (uint64_t stack = 0; stack < 100; ++stack) reader.stacks().frames(stack);
    }
    if (is_whole != reader.error().empty()) FAIL("no sentence, or one too many: " << reader.error());
  }
  fclose(file);
}

}  // namespace

TEST_CASE("a damaged trace costs no more than its size and ends in a sentence") {
  const char* const asked = getenv("CUPOOL_FUZZ_TURNS");
  const int turns = asked != nullptr ? atoi(asked) : 3000;
  std::mt19937_64 random(asked != nullptr ? std::random_device()() : 20);
  std::string good = some_trace(random);
  good.insert(good.find("CUCT", 4), stacks());
  for (int turn = 0; turn < turns; ++turn) {
    std::string bad = damaged(good, random);
    if (random() % 4 != 0) mend(&bad);
    const size_t before = taken;
    most_taken = taken;
    uint64_t events = 0;
    read_all(bad, &events);
    if (events > bad.size() || most_taken - before > kFixed + kPerByte * bad.size())
      FAIL("turn " << turn << ": " << events << " events, " << most_taken - before << " bytes of memory for "
                   << bad.size() << " bytes of file");
  }
}

TEST_CASE("a block that claims more than there can be is refused before anything is read") {
  std::mt19937_64 random(3);
  std::string bad = some_trace(random);
  const size_t second = bad.find("CUCT", 4);
  for (const uint32_t claim : {0xFFFFFFFFU, 0x7FFFFFFFU, static_cast<uint32_t>(trace::kMostContent + 1)}) {
    memcpy(bad.data() + second + 8, &claim, sizeof claim);
    const size_t before = taken;
    most_taken = taken;
    uint64_t events = 0;
    read_all(bad, &events);
    CHECK(events == 0);
    CHECK(most_taken - before < kFixed + bad.size());
  }
}
