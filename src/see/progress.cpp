// See progress.hpp.
#include "see/progress.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/say.hpp"

namespace cupool::see {
namespace {

constexpr uint64_t kPatience = 1'000'000'000;
constexpr uint64_t kBetween = 100'000'000;
constexpr size_t kWidth = 30;

}  // namespace

Progress::Progress(std::FILE* file, uint64_t bytes)
    : file_(file), bytes_(bytes), began_(now_ns()), is_terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  // Takes the line away.
  if (is_shown_) say(stderr, "\r{}\r", trusted("\x1b[K"));
}

void Progress::draw(const std::string& text) {
  const uint64_t now = now_ns();
  if (!is_terminal_ || now - began_ < kPatience || now - drawn_ < kBetween) return;
  drawn_ = now;
  is_shown_ = true;
  say(stderr, "{}", trusted("\r\x1b[K" + text));
  fflush(stderr);
}

void Progress::read() {
  if (!is_terminal_) return;
  const long at = ftell(file_);
  const uint64_t share =
      at < 0 || bytes_ == 0 ? 0 : std::min<uint64_t>(100, static_cast<uint64_t>(at) * 100 / bytes_);
  const size_t full = static_cast<size_t>(share) * kWidth / 100;
  draw("reading the trace [" + std::string(full, '#') + std::string(kWidth - full, '.') +
       make_text("] {} %", share));
}

void Progress::step(const char* what) { draw(what); }

}  // namespace cupool::see
