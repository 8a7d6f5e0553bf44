// A process on the board: neighbour DIRECTORY CACHED [once]. Publishes that many idle bytes on one device,
// says "ready" and answers requests as the library does, until it is killed. "churn" for CACHED: publishes
// different numbers of entries as fast as it can, and comes and goes. With "lost" as a third word it exits
// when the board is lost.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "neighbours/board.hpp"

using namespace cupool::neighbours;

namespace {

constexpr uint64_t kLive = 1000;

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
          4};
}

[[noreturn]] void churn(const char* directory) {
  Board board(directory);
  Figures many[8];
  for (int64_t i = 0; i < 8; ++i) many[i] = make(1, i);
  bool told = false;
  for (unsigned turn = 0;; ++turn) {
    if (!board.open()) _exit(2);
    board.publish(many, turn % 8 + 1);
    board.ask({{}, true, -1, 0, 0});
    if (!told) say("ready\n");
    told = true;
    if (turn % 16 == 15) board.leave();
  }
}

[[noreturn]] void answer(const char* directory, uint64_t cached, bool until_lost) {
  Board board(directory);
  if (!board.open()) {
    say(board.refusal());
    _exit(2);
  }
  uint64_t serial = 0;
  uint32_t bell = board.bell();
  Figures mine = make(cached, 0);
  board.publish(&mine, 1);
  say("ready\n");
  for (;;) {
    if (!board.wait(bell, until_lost ? 20'000'000 : -1)) {
      if (until_lost && !board.is_open()) _exit(0);
      if (!board.is_open()) board.open();
    }
    bell = board.bell();
    Ask asks[8];
    const size_t count = board.asks_since(&serial, asks, 8);
    for (size_t i = 0; i < count; ++i) {
      if (asks[i].bytes != 0) mine = make(0, 0);
    }
    board.publish(&mine, 1);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 1;
  if (strcmp(words[2], "churn") == 0) churn(words[1]);
  answer(words[1], strtoull(words[2], nullptr, 10), count > 3 && strcmp(words[3], "lost") == 0);
}
