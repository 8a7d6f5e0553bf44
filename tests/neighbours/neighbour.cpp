// A process in the registry: neighbour DIRECTORY CACHED [once]. Publishes that many idle bytes on one device,
// says "ready" and answers requests as the library does, until it is killed. "churn" for CACHED: publishes
// different numbers of entries as fast as it can, and comes and goes. With "lost" as a third word it exits
// when the registry is lost, with "twice" it publishes its entry twice.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "neighbours/registry.hpp"

using namespace cupool::neighbours;

namespace {

constexpr uint64_t kLive = 1000;
constexpr uint64_t kCapacity = 80 * cupool::kGiB;
constexpr uint64_t kUnlimited = cupool::kUnlimited;

void say(std::string_view text) {
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(3);
}

Figures make(uint64_t cached, int64_t ordinal) {
  return {{{0x5c, 1, 2, static_cast<unsigned char>(ordinal)}},
          ordinal,
          kLive,
          cached,
          kLive + cached,
          2 * kLive,
          3,
          1,
          4,
          500,
          kCapacity,
          kUnlimited};
}

[[noreturn]] void churn(const char* directory) {
  Registry registry(directory);
  Figures many[8];
  for (int64_t i = 0; i < 8; ++i) many[i] = make(1, i);
  bool told = false;
  for (unsigned turn = 0;; ++turn) {
    if (!registry.open()) _exit(2);
    registry.publish(many, turn % 8 + 1);
    registry.ask({{}, true, -1, 0, 0});
    if (!told) say("ready\n");
    told = true;
    if (turn % 16 == 15) registry.leave();
  }
}

[[noreturn]] void answer(const char* directory, uint64_t cached, bool until_lost, size_t times) {
  Registry registry(directory);
  if (!registry.open()) {
    say(registry.refusal());
    _exit(2);
  }
  uint64_t serial = 0;
  uint32_t bell = registry.bell();
  Figures mine[2] = {make(cached, 0), make(cached, 0)};
  registry.publish(mine, times);
  say("ready\n");
  for (;;) {
    if (!registry.wait(bell, until_lost ? 20'000'000 : -1)) {
      if (until_lost && !registry.is_open()) _exit(0);
      if (!registry.is_open()) registry.open();
    }
    bell = registry.bell();
    Ask asks[8];
    const size_t count = registry.asks_since(&serial, asks, 8);
    for (size_t i = 0; i < count; ++i) {
      if (asks[i].bytes != 0) mine[0] = mine[1] = make(0, 0);
    }
    registry.publish(mine, times);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 1;
  if (strcmp(words[2], "churn") == 0) churn(words[1]);
  const std::string_view how = count > 3 ? words[3] : "";
  answer(words[1], strtoull(words[2], nullptr, 10), how == "lost", how == "twice" ? 2 : 1);
}
