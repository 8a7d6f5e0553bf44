// Counters: nothing is lost between threads, ended threads stay counted, a child starts at zero, JSON names
// them all.
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "stats/print.hpp"

using namespace cupool::stats;

namespace {

void append(void* target, const char* text, unsigned long size) {
  static_cast<std::string*>(target)->append(text, size);
}

}  // namespace

TEST_CASE("counts of all threads add up, also of threads that ended") {
  forget_after_fork();
  constexpr int kThreads = 8, kRounds = 10000;
  for (int wave = 0; wave < 2; ++wave) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([] {
        for (int round = 0; round < kRounds; ++round) {
          count(Counter::allocations);
          count(Event::captures);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  count(Counter::allocations, 5);
  CHECK(sums().allocations == 2u * kThreads * kRounds + 5);
  CHECK(sums().captures == 2u * kThreads * kRounds);
}

TEST_CASE("a forked child starts at zero and counts on") {
  count(Counter::frees, 3);
  count(Event::ipc_exports);
  forget_after_fork();
  visit(sums(), [](const CounterInfo& info, uint64_t value) {
    INFO(info.name);
    CHECK(value == 0);
  });
  count(Counter::frees);
  CHECK(sums().frees == 1);
}

TEST_CASE("the JSON names every counter and the text only those that counted") {
  forget_after_fork();
  count(Counter::frees, 7);
  std::string json, text;
  print_json(sums(), append, &json);
  print_text(sums(), append, &text);
  visit(sums(), [&](const CounterInfo& info, uint64_t value) {
    std::string entry(info.name);
    entry.append("\":").append(std::to_string(value));
    CHECK(json.find(entry) != std::string::npos);
  });
  CHECK(json.front() == '{');
  CHECK(json.substr(json.size() - 2) == "}\n");
  CHECK(text.find("frees") != std::string::npos);
  CHECK(text.find("captures") == std::string::npos);
}
