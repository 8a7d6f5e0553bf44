// Reads the environment once, on first use, under the guard of a function-local static.
// Must not call anything of the driver: it runs before cuInit.
#include "sim/options.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/say.hpp"

namespace cupool::sim {
namespace {

void junk(const char* name, const char* text) {
  say(stderr, "cupool-sim: {}={} is not a value I know; using the default\n", name, text);
}

unsigned suffix_shift(char c) {
  switch (c | 0x20) {
    case 'k':
      return 10;
    case 'm':
      return 20;
    case 'g':
      return 30;
    case 't':
      return 40;
    default:
      return 0;
  }
}

// Accepts 4096, 64K, 512M, 4GiB.
bool parse_number(const char* text, std::uint64_t& out) {
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = std::strtoull(text, &end, 0);
  if (end == text || errno != 0 || *text == '-') return false;
  unsigned shift = 0;
  if (*end != '\0') {
    shift = suffix_shift(*end);
    const char* rest = end + 1;
    if (shift == 0 || (*rest != '\0' && std::strcmp(rest, "B") != 0 && std::strcmp(rest, "iB") != 0))
      return false;
  }
  out = value << shift;
  return (out >> shift) == value;
}

std::uint64_t number(const char* name, std::uint64_t fallback, std::uint64_t low, std::uint64_t high) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read once, as cupool does
  if (text == nullptr || *text == '\0') return fallback;
  std::uint64_t value = 0;
  if (!parse_number(text, value) || value < low || value > high) {
    junk(name, text);
    return fallback;
  }
  return value;
}

std::string word(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read once, as cupool does
  return text == nullptr ? std::string() : std::string(text);
}

AllowedWaits allowed_waits() {
  const std::string text = word("CUPOOL_SIM_WAITS");
  if (text == "exact") return AllowedWaits::kExact;
  if (text == "off") return AllowedWaits::kAll;
  if (!text.empty() && text != "any") junk("CUPOOL_SIM_WAITS", text.c_str());
  return AllowedWaits::kAny;
}

Options read() {
  Options o;
  o.seed = number("CUPOOL_SIM_SEED", o.seed, 0, UINT64_MAX);
  o.memory = number("CUPOOL_SIM_MEMORY", o.memory, 2ull << 20, 16ull << 40);
  o.devices = static_cast<int>(number("CUPOOL_SIM_DEVICES", 1, 0, 16));
  o.driver_version = static_cast<int>(number("CUPOOL_SIM_DRIVER_VERSION", 13000, 11000, 13000));
  o.oracle = number("CUPOOL_SIM_ORACLE", 1, 0, 1) != 0;
  o.charges = number("CUPOOL_SIM_CHARGES", 0, 0, 1) != 0;
  o.waits = allowed_waits();
  o.hang_ms = number("CUPOOL_SIM_HANG_MS", o.hang_ms, 0, UINT64_MAX / 2000000);
  o.faults = word("CUPOOL_SIM_FAULTS");
  o.report = word("CUPOOL_SIM_REPORT");
  return o;
}

}  // namespace

const Options& options() {
  static const Options* const kept = new Options(read());  // never torn down: used at exit
  return *kept;
}

}  // namespace cupool::sim
