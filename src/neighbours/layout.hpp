// The bytes of the registry: a page with the header, a ring of requests, the slots. Records carry a checksum
// that also covers their place, so that a torn or foreign write is skipped. What is read becomes an Entry or
// an Ask only through the checks here. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "neighbours/registry.hpp"

namespace cupool::neighbours {

struct Header {
  char magic[8];
  uint32_t layout;
  uint32_t bell;
  uint64_t serial;  // of the last request
};
inline constexpr char kMagic[8] = {'c', 'u', 'p', 'o', 'o', 'l', 'c', '\n'};
inline constexpr uint64_t kBellAt = offsetof(Header, bell);

struct AskRecord {
  uint64_t checksum;
  uint64_t stamp;
  uint64_t from;  // token of the asking process
  uint64_t pid_namespace;
  int64_t pid;
  uint64_t bytes;
  uint64_t serial;
  uint32_t every_device;
  uint32_t what;  // Ask::What; a process that knows only memory sees none asked for
  DeviceId device;
  uint64_t token;
  uint64_t duration_ns;
  unsigned char unused_end[32];
};
static_assert(sizeof(AskRecord) == 128);

struct SlotRecord {
  uint64_t checksum;
  uint64_t stamp;
  Identity who;
  Figures figures;
  char program[64];
  unsigned char unused[16];
};
static_assert(sizeof(SlotRecord) == 256);
// Checksums read every byte, so there must be no padding.
static_assert(std::has_unique_object_representations_v<AskRecord>);
static_assert(std::has_unique_object_representations_v<SlotRecord>);

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kAsks = 64;
inline constexpr uint64_t kAsksAt = kPageBytes;
inline constexpr uint64_t kSlotsAt = kAsksAt + kAsks * sizeof(AskRecord);
inline constexpr uint64_t kFileBytes = kSlotsAt + Registry::kMostEntries * sizeof(SlotRecord);
static_assert(kFileBytes % kPageBytes == 0);

inline constexpr uint64_t ask_at(uint64_t serial) { return kAsksAt + serial % kAsks * sizeof(AskRecord); }
inline constexpr uint64_t slot_at(uint32_t slot) { return kSlotsAt + slot * sizeof(SlotRecord); }

// `at`: the record's place in the file.
void seal(AskRecord* record, uint64_t at);
void seal(SlotRecord* record, uint64_t at);
bool is_whole(const AskRecord& record, uint64_t at);
bool is_whole(const SlotRecord& record, uint64_t at);

// The record with every number within its bounds and a printable name; false: its pid or device is
// impossible.
bool to_entry(const SlotRecord& record, const Identity& self, Entry* out);

}  // namespace cupool::neighbours
