// Call stacks: the table of rows, taking them, drawing them, the map of what is loaded, and whether a thread
// is inside the loader.
#include <dlfcn.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tools/trace_reader.hpp"
#include "trace/loading.hpp"
#include "trace/recorder.hpp"
#include "trace/saved_return.hpp"
#include "trace/stacks.hpp"
#include "trace/word_table.hpp"
#include "trace_file.hpp"

namespace {

namespace trace = cupool::trace;
namespace told = cupool::trace::told;
using cupool::tools::Happened;
using cupool::tools::TraceReader;

trace::StackSettings depth(size_t frames) {
  trace::StackSettings settings;
  settings.depth = frames;
  return settings;
}

[[gnu::noinline]] uint32_t stack_from_here() {
  const uint32_t taken = trace::take_stack();
  asm volatile("" ::: "memory");  // no tail call
  return taken;
}
[[gnu::noinline]] uint32_t stack_from_there() {
  const uint32_t taken = trace::take_stack();
  asm volatile("" ::: "memory");
  return taken;
}

}  // namespace

TEST_CASE("a row is stored once, whichever threads add it at the same time") {
  static trace::WordTable table(12);
  constexpr size_t kThreads = 4;
  constexpr uint64_t kRows = 1000;
  std::vector<uint32_t> numbers[kThreads];
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kRows; ++i) {
        const std::vector<uint64_t> row(1 + i % 9, i * 0x1000);
        numbers[t].push_back(table.find_or_add(row, static_cast<uint32_t>(i)));
      }
    });
  }
  for (std::thread& one : threads) one.join();
  for (size_t t = 1; t < kThreads; ++t) CHECK(numbers[t] == numbers[0]);
  CHECK(std::set<uint32_t>(numbers[0].begin(), numbers[0].end()).size() == kRows);
  for (uint64_t i = 0; i < kRows; ++i) {
    const auto found = table.row(numbers[0][i]);
    REQUIRE(found.words.size() == 1 + i % 9);
    CHECK(found.words[0] == i * 0x1000);
    CHECK(found.note == i);
    CHECK(table.find(found.words) == numbers[0][i]);
  }
  std::set<uint32_t> told;
  table.tell_new([&](uint32_t number, const auto&) { return told.insert(number).second; });
  for (const uint32_t number : numbers[0]) CHECK(told.count(number) == 1);
  size_t again = 0;
  table.tell_new([&](uint32_t, const auto&) { return ++again > 0; });
  CHECK(again == 0);
}

TEST_CASE("a table of rows that is full takes no more, and keeps what it has") {
  static trace::WordTable table(4);
  uint32_t taken = 0;
  for (uint64_t i = 1; i <= 100; ++i) taken += table.find_or_add({&i, 1}) != 0 ? 1 : 0;
  CHECK(taken == 15);
  const uint64_t first = 1;
  CHECK(table.find_or_add({&first, 1}) == 1);
}

TEST_CASE("a stack is that of the caller, the same each time, and in the trace before its event") {
  trace::begin_stacks(depth(8));
  cupool::test::Scratch scratch;
  const std::string path = scratch.file("t");
  const trace::Settings settings = cupool::test::settings_for(path);
  REQUIRE(trace::begin(cupool::test::about(), settings));
  uint32_t stacks[3] = {};
  volatile int turns = 2;  // so that there is one call in the code
  for (int i = 0; i < turns; ++i) stacks[i] = stack_from_here();
  stacks[2] = stack_from_there();
  REQUIRE(stacks[0] != 0);
  CHECK(stacks[0] == stacks[1]);
  CHECK(stacks[2] != stacks[0]);
  for (uint64_t i = 0; i < 3; ++i) {
    told::Allocated event{};
    event.address = (i + 1) << 12;
    event.asked = 100;
    event.stack = stacks[i];
    trace::record(event);
  }
  trace::finish();
  std::string bytes = cupool::test::bytes_of(path);
  std::FILE* const file = fmemopen(bytes.data(), bytes.size(), "r");
  TraceReader reader(file);
  REQUIRE(reader.begin());
  const size_t allocated = reader.about().find_event("allocated");
  const int field = reader.about().events[allocated].find("stack");
  size_t seen = 0;
  CHECK(reader.read([&](const Happened& one) {
    if (one.event != allocated) return;
    ++seen;
    const auto frames = reader.stacks().frames(one.values[static_cast<size_t>(field)]);
    REQUIRE(frames.size() == 8);
    REQUIRE(frames[1].module != nullptr);
    // The function that asked is one of this program, right behind the recorder's own.
    const auto of = reinterpret_cast<uint64_t>(seen == 3 ? &stack_from_there : &stack_from_here);
    CHECK(std::any_of(frames.begin(), frames.begin() + 3, [&](const cupool::tools::TraceFrame& frame) {
      return frame.address >= of && frame.address < of + 64;
    }));
    CHECK(frames[1].module->path.find("test_stacks") != std::string::npos);
    CHECK_FALSE(frames[1].module->build_id.empty());
  }));
  CHECK(seen == 3);
  fclose(file);
}

TEST_CASE("drawn allocations count for as many bytes as there were") {
  trace::StackSettings settings = depth(4);
  settings.sample = 1 << 20;
  trace::begin_stacks(settings);
  double drawn = 0;
  double all = 0;
  constexpr uint64_t kSizes[] = {1000, 40000, 700000, 3000000, 9000000};
  double drawn_of[5] = {};
  constexpr int kTurns = 60000;
  for (int i = 0; i < kTurns; ++i) {
    const size_t which = static_cast<size_t>(i) % 5;
    const auto size = static_cast<double>(kSizes[which]);
    all += size;
    if (trace::take_stack_of_allocation(kSizes[which]) == 0) continue;
    const double chance = 1 - std::exp(-size / static_cast<double>(settings.sample));
    drawn += size / chance;
    drawn_of[which] += 1 / chance;
  }
  // (Six standard deviations of the smallest sizes, of which few are drawn.)
  CHECK(drawn / all == Approx(1).margin(0.02));
  CHECK(drawn_of[1] / (kTurns / 5) == Approx(1).margin(0.3));
  CHECK(drawn_of[2] / (kTurns / 5) == Approx(1).margin(0.06));
  CHECK(drawn_of[4] == Approx(kTurns / 5).margin(20));
  trace::begin_stacks({});
}

TEST_CASE("a map is what was loaded when it was looked at") {
  trace::Modules modules;
  const uint32_t before = modules.look();
  CHECK(modules.look() == before);
  trace::Modules::Module found{};
  REQUIRE(modules.find(reinterpret_cast<uint64_t>(&stack_from_here), before, &found));
  CHECK(std::string(found.path).find("test_stacks") != std::string::npos);
  CHECK(found.build_id_bytes >= 8);
  void* const library = dlopen("libutil.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const uint32_t with = modules.look();
  CHECK(with == before + 1);
  dlclose(library);
  const uint32_t after = modules.look();
  CHECK(after == with + 1);
  std::vector<std::string> loaded;
  std::vector<uint64_t> gone;
  modules.tell_new(
      [&](uint64_t, const trace::Modules::Module& one) {
        loaded.push_back(one.path);
        if (std::string(one.path).find("libutil") != std::string::npos) {
          CHECK(one.map == with);
          CHECK(one.gone == after);
        }
        return true;
      },
      [&](uint64_t, uint64_t map) {
        gone.push_back(map);
        return true;
      });
  CHECK(loaded.size() > 2);
  CHECK(gone == std::vector<uint64_t>{after});
}

namespace {

uint32_t stack_in_the_call = 1;
// As the door of dlopen: notes where its return address stands, and is inside until it returns.
[[gnu::noinline]] bool loads() {
  const auto* const slot = static_cast<const uintptr_t*>(__builtin_frame_address(0)) + 1;
  trace::note_loader_call({slot, *slot, reinterpret_cast<uintptr_t>(__builtin_dwarf_cfa())});
  stack_in_the_call = trace::take_stack();
  return trace::is_inside_loader();
}
[[gnu::noinline]] bool calls_something_else() {
  const bool inside = trace::is_inside_loader();
  asm volatile("" ::: "memory");
  return inside;
}
[[gnu::noinline]] bool loads_and_returns() {
  const bool inside = loads();
  asm volatile("" ::: "memory");
  return inside;
}

}  // namespace

TEST_CASE("no stack is taken inside the loader, and one is once it has returned") {
  trace::begin_stacks(depth(4));
  CHECK_FALSE(trace::is_inside_loader());
  CHECK(loads_and_returns());
  CHECK(stack_in_the_call == 0);
  CHECK_FALSE(calls_something_else());
  CHECK(trace::take_stack() != 0);
}

TEST_CASE("where a function of aarch64 stores its return address is told by its first instructions") {
  constexpr uint32_t kOther = 0xB0000923;      // adrp x3
  constexpr uint32_t kSign = 0xD503233F;       // paciasp
  constexpr uint32_t kPush64 = 0xA9BC7BFD;     // stp x29, x30, [sp, #-64]!
  constexpr uint32_t kStore48 = 0xA9037BFD;    // stp x29, x30, [sp, #48]
  constexpr uint32_t kLower64 = 0xD10103FF;    // sub sp, sp, #64
  constexpr uint32_t kLower4096 = 0xD14007FF;  // sub sp, sp, #1, lsl #12
  constexpr uint32_t kMove = 0x910003FD;       // mov x29, sp
  constexpr uint32_t kCall = 0x97FFFE4B;       // bl
  constexpr uint32_t kReturn = 0xD65F03C0;
  struct Case {
    std::vector<uint32_t> code;
    size_t depth;
  };
  for (Case& one : std::vector<Case>{{{kSign, kPush64, kMove}, 56},
                                     {{kOther, kOther, kOther, kPush64}, 56},
                                     {{kLower64, kOther, kStore48, kMove}, 8},
                                     {{kLower4096, kLower64, kStore48}, 4096 + 8},
                                     {{0xA9BF7BFD}, 8},  // [sp, #-16]!
                                     {{kStore48}, 0},    // above the caller's stack pointer
                                     {{kOther, kReturn, kPush64}, 0},
                                     {{kCall, kPush64}, 0},
                                     {{0xD63F0040, kPush64}, 0},  // blr x2
                                     {{kMove, kPush64}, 0},
                                     {{0xA9BC7BFC, kOther}, 0}}) {  // stp x28, x30
    one.code.resize(64, kOther);
    CHECK(trace::depth_of_saved_return(one.code.data()) == one.depth);
  }
}
