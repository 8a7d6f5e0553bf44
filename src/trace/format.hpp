// The form of a trace file, docs/trace-format.md in code: blocks, each with a head of fixed size and a
// checksum over head and content, written whole and never changed. Numbers in heads are little-endian; within
// a content they are varints. No state.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cupool::trace {

static_assert(std::endian::native == std::endian::little, "heads are written as they lie in memory");

// Readers refuse newer ones.
inline constexpr uint32_t kFormatVersion = 1;
inline constexpr uint32_t kMagic = 0x54435543;  // "CUCT"

enum class BlockKind : uint16_t {
  kAbout = 1,    // the first one: version, process, tables of events and calls
  kEvents = 2,   // events of one thread
  kLive = 3,     // a part of a live set: what the program held at `time`
  kIndex = 4,    // where blocks lie that came since the last index
  kStacks = 5,   // call stacks, each once (records.hpp)
  kModules = 6,  // which library lay where (records.hpp)
};

struct BlockHead {
  uint32_t magic = kMagic;
  uint32_t checksum = 0;  // CRC-32C of the head with this field as 0, then of the content
  uint32_t bytes = 0;     // of the content
  uint16_t kind = 0;
  uint16_t flags = 0;     // of a live set: kFirstPart, kLastPart
  uint64_t sequence = 0;  // from 0, without holes but in a trace that was kept in memory
  uint64_t time = 0;      // where the times of its events begin: nanoseconds of CLOCK_MONOTONIC
  uint64_t round = 0;     // when it was gathered: all events that began before an earlier round are in it
  uint32_t thread = 0;    // the kernel's number of the thread
  uint32_t count = 0;     // of its events or records
};
static_assert(sizeof(BlockHead) == 48);

inline constexpr uint16_t kFirstPart = 1;
inline constexpr uint16_t kLastPart = 2;

// Of a content. Readers refuse more.
inline constexpr size_t kMostContent = 256 << 10;

// CRC-32C; begin with 0 and go on with the result of the part before.
uint32_t crc32c(uint32_t before, const void* data, size_t bytes);
uint32_t checksum_of(BlockHead head, const void* content);

// ---- Varints: seven bits a byte, the lowest first; the eighth says that more follow. Signed numbers are
// folded: 0, -1, 1, -2, ...

inline constexpr size_t kMostVarint = 10;

inline uint8_t* put_varint(uint8_t* out, uint64_t value) {
  while (value >= 0x80) {
    *out++ = static_cast<uint8_t>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<uint8_t>(value);
  return out;
}
inline uint64_t fold(int64_t value) {
  return static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63);
}
inline int64_t unfold(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

}  // namespace cupool::trace
