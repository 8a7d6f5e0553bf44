// See format.hpp. The checksum goes by tables, eight bytes at a time: a trace is written on every processor.
#include "trace/format.hpp"

#include <array>
#include <cstring>

namespace cupool::trace {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // Castagnoli's, reflected

constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? value >> 1 ^ kPolynomial : value >> 1;
    tables[0][i] = value;
  }
  for (size_t t = 1; t < tables.size(); ++t) {
    for (size_t i = 0; i < 256; ++i)
      tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xFF];
  }
  return tables;
}();

}  // namespace

uint32_t crc32c(uint32_t before, const void* data, size_t bytes) {
  uint32_t value = ~before;
  const auto* at = static_cast<const uint8_t*>(data);
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    word ^= value;
    value = 0;
    for (size_t i = 0; i < 8; ++i) value ^= kTables[7 - i][word >> (8 * i) & 0xFF];
  }
  for (; bytes > 0; --bytes) value = value >> 8 ^ kTables[0][(value ^ *at++) & 0xFF];
  return ~value;
}

uint32_t checksum_of(BlockHead head, const void* content) {
  head.checksum = 0;
  return crc32c(crc32c(0, &head, sizeof head), content, head.bytes);
}

}  // namespace cupool::trace
