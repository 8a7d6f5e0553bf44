// Call stacks and modules through their records and back through the reader.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tools/trace_reader.hpp"
#include "trace/recorder.hpp"
#include "trace/records.hpp"
#include "trace_file.hpp"

namespace {

namespace trace = cupool::trace;
using cupool::test::about;
using cupool::test::bytes_of;
using cupool::test::Scratch;
using cupool::test::settings_for;
using cupool::tools::Happened;
using cupool::tools::TraceReader;

// One block, as the library makes it.
std::string block_of(trace::BlockKind kind, const trace::Records& records, const std::vector<uint8_t>& room) {
  trace::BlockHead head;
  head.kind = static_cast<uint16_t>(kind);
  head.bytes = static_cast<uint32_t>(records.size());
  head.count = records.count();
  head.checksum = trace::checksum_of(head, room.data());
  std::string out(reinterpret_cast<const char*>(&head), sizeof head);
  return out + std::string(reinterpret_cast<const char*>(room.data()), records.size());
}
// The head of a trace with nothing in it.
std::string empty_trace() {
  Scratch scratch;
  const std::string path = scratch.file("t");
  const trace::Settings settings = settings_for(path);
  REQUIRE(trace::begin(about(), settings));
  trace::finish();
  return bytes_of(path);
}
// Reads a file, then calls see(stacks).
template <typename See>
bool read_stacks(std::string bytes, See&& see) {
  std::FILE* const file = fmemopen(bytes.data(), bytes.size(), "r");
  TraceReader reader(file);
  const bool is_whole = reader.begin() && reader.read([](const Happened&) {});
  see(reader.stacks());
  fclose(file);
  return is_whole;
}
std::string some_stacks() {
  std::vector<uint8_t> room(128 << 10);
  trace::Records records;
  records.begin(room);
  records.module({1, 1, 0x400000, 0x500000, 0, "\xab\x01", "/bin/app"});
  records.module({2, 1, 0x7f0000000000, 0x7f0000010000, 0x7f0000000000, "", "/lib/a.so"});
  records.gone(2, 2);
  records.module({3, 2, 0x7f0000000000, 0x7f0000020000, 0x7effffff0000, "", "/lib/b.so"});
  std::string out = block_of(trace::BlockKind::kModules, records, room);
  records.begin(room);
  records.text(1, "train");
  records.text(2, "/home/a/train.py");
  records.place(1, 1, 2, 17);
  const uint64_t frames[] = {0x7f0000000101, trace::kIsPlace | 1, 0x400201};
  records.stack(1, 1, frames);
  records.stack(2, 2, frames);
  records.stack(3, 3, std::vector<uint64_t>(1000, 0x400301));
  return out + block_of(trace::BlockKind::kStacks, records, room);
}

}  // namespace

TEST_CASE("the frames of a stack are those of what lay there when it was taken") {
  const bool is_whole =
      read_stacks(empty_trace() + some_stacks(), [](const cupool::tools::TraceStacks& read) {
        const auto first = read.frames(1);
        REQUIRE(first.size() == 3);
        REQUIRE(first[0].module != nullptr);
        CHECK(first[0].module->path == "/lib/a.so");
        CHECK(first[0].offset == 0x100);
        REQUIRE(first[1].place != nullptr);
        CHECK(first[1].place->function == "train");
        CHECK(first[1].place->file == "/home/a/train.py");
        CHECK(first[1].place->line == 17);
        REQUIRE(first[2].module != nullptr);
        CHECK(first[2].module->build_id == "ab01");
        CHECK(first[2].offset == 0x400200);
        const auto later = read.frames(2);
        REQUIRE(later.size() == 3);
        REQUIRE(later[0].module != nullptr);
        CHECK(later[0].module->path == "/lib/b.so");
        CHECK(later[0].offset == 0x10100);
        CHECK(read.frames(3).size() == trace::kMostFrames);
        CHECK(read.frames(4).empty());
      });
  CHECK(is_whole);
}

TEST_CASE("a reader skips records and fields that it does not know") {
  std::string bytes = empty_trace();
  std::vector<uint8_t> room;
  const auto number = [&](uint64_t value) {
    uint8_t out[trace::kMostVarint];
    room.insert(room.end(), out, trace::put_varint(out, value));
  };
  for (const uint64_t value : {77, 2, 0xAA, 0xBB}) number(value & 0x7F);  // a record of the future
  for (const uint64_t value : {3, 5, 9, 1, 1, 2, 99}) number(value);      // a stack with one field more
  trace::BlockHead head;
  head.kind = static_cast<uint16_t>(trace::BlockKind::kStacks);
  head.bytes = static_cast<uint32_t>(room.size());
  head.count = 2;
  head.checksum = trace::checksum_of(head, room.data());
  bytes.append(reinterpret_cast<const char*>(&head), sizeof head);
  bytes.append(reinterpret_cast<const char*>(room.data()), room.size());
  CHECK(
      read_stacks(bytes, [](const cupool::tools::TraceStacks& read) { CHECK(read.frames(9).size() == 1); }));
}

TEST_CASE("stacks of any content at all end in a sentence or are read") {
  const std::string begin = empty_trace();
  const std::string good = some_stacks();
  std::mt19937_64 random(5);
  for (int turn = 0; turn < 3000; ++turn) {
    std::string bad = good;
    for (uint64_t i = random() % 6; i-- > 0;) bad[random() % bad.size()] = static_cast<char>(random());
    for (size_t at = 0; at + sizeof(trace::BlockHead) <= bad.size();) {
      trace::BlockHead head;
      memcpy(&head, bad.data() + at, sizeof head);
      if (head.bytes > bad.size() - at - sizeof head) break;
      head.checksum = trace::checksum_of(head, bad.data() + at + sizeof head);
      memcpy(bad.data() + at, &head, sizeof head);
      at += sizeof head + head.bytes;
    }
    read_stacks(begin + bad, [](const cupool::tools::TraceStacks& read) {
      for (uint64_t stack = 0; stack < 5; ++stack) CHECK(read.frames(stack).size() <= trace::kMostFrames);
    });
  }
}
