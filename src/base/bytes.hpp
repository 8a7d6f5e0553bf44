// Byte sizes as people write and read them: 512, 64K, 1.5GiB, 20%, unlimited. Pure functions, no state, no
// allocation. K, M, G and T always mean powers of 1024, with or without "B" or "iB" behind them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cupool {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;
inline constexpr uint64_t kUnlimited = UINT64_MAX;

// pre: step is a power of two.
inline constexpr uint64_t round_up(uint64_t bytes, uint64_t step) { return (bytes + step - 1) & ~(step - 1); }

// An amount of memory, or a share of a total that is not known at parse time (a device's memory).
struct Size {
  uint64_t bytes = 0;  // with `percent`: hundredths of a percent
  bool percent = false;

  uint64_t of(uint64_t whole) const {
    return percent ? static_cast<uint64_t>(static_cast<unsigned __int128>(whole) * bytes / 10000) : bytes;
  }
  bool operator==(const Size&) const = default;
};

std::optional<Size> parse_size(std::string_view text);

// "1.5 GiB" in a buffer of its own, so that it can be an argument of a log line.
struct SizeText {
  char text[24];
  // NOLINTNEXTLINE(google-explicit-constructor): it is a text and prints as one
  operator std::string_view() const { return text; }
};
SizeText print_bytes(uint64_t bytes);

// The shortest text that parse_size reads back as the same value: "1536M", "20%", "unlimited".
SizeText print_size(Size size);

}  // namespace cupool
