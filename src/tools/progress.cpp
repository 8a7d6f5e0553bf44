// See progress.hpp.
#include "tools/progress.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/say.hpp"

namespace cupool::tools {
namespace {

constexpr uint64_t kPatience = 1'000'000'000;
constexpr uint64_t kBetween = 100'000'000;
constexpr uint64_t kWidth = 30;

}  // namespace

Progress::Progress() : is_terminal_(isatty(STDERR_FILENO) == 1), began_(now_ns()) {}

Progress::~Progress() {
  if (drawn_ != 0) say(stderr, "{}", trusted("\r\x1b[K"));
}

bool Progress::is_due() const {
  const uint64_t now = now_ns();
  return is_terminal_ && now - began_ >= kPatience && now - drawn_ >= kBetween;
}

void Progress::draw(const std::string& text) {
  drawn_ = now_ns();
  say(stderr, "{}", trusted("\r\x1b[K" + text));
  fflush(stderr);
}

void Progress::show(const char* what, uint64_t done, uint64_t all, const std::string& more) {
  if (!is_due() || all == 0) return;
  const double share = static_cast<double>(std::min(done, all)) / static_cast<double>(all);
  const auto full = static_cast<size_t>(share * static_cast<double>(kWidth));
  draw(make_text("{} [{}{}] {} %{}{}", what, std::string(full, '#'), std::string(kWidth - full, '.'),
                 static_cast<unsigned>(share * 100), more.empty() ? "" : ", ", more));
}

void Progress::show(const char* what) {
  if (is_due()) draw(what);
}

}  // namespace cupool::tools
