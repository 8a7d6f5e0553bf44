// See layout.hpp.
#include "neighbours/layout.hpp"

#include <algorithm>
#include <cstring>

#include "base/format.hpp"

namespace cupool::neighbours {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 48;
constexpr uint64_t kMostCount = uint64_t{1} << 62;
constexpr int64_t kMostOrdinal = 1023;

// FNV-1a over everything behind the checksum, seeded with the place.
template <typename Record>
uint64_t checksum(const Record& record, uint64_t at) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&record);
  uint64_t sum = 0xcbf29ce484222325U ^ at;
  for (size_t i = sizeof record.checksum; i < sizeof record; ++i) sum = (sum ^ bytes[i]) * 0x100000001b3U;
  return sum == 0 ? 1 : sum;
}

}  // namespace

void seal(AskRecord* record, uint64_t at) { record->checksum = checksum(*record, at); }
void seal(SlotRecord* record, uint64_t at) { record->checksum = checksum(*record, at); }
bool is_whole(const AskRecord& record, uint64_t at) { return record.checksum == checksum(record, at); }
bool is_whole(const SlotRecord& record, uint64_t at) { return record.checksum == checksum(record, at); }

bool to_entry(const SlotRecord& record, const Identity& self, Entry* out) {
  const Figures& read = record.figures;
  if (record.who.pid <= 0 || record.who.pid > INT32_MAX || read.ordinal < 0 || read.ordinal > kMostOrdinal)
    return false;
  *out = {};
  out->pid = record.who.pid;
  out->same_namespace = record.who.pid_namespace == self.pid_namespace;
  out->pid_namespace = record.who.pid_namespace;
  out->process = record.who.token;
  out->stamp = record.stamp;
  memcpy(out->program, record.program, sizeof out->program);
  out->program[sizeof out->program - 1] = '\0';
  flatten(out->program, strlen(out->program));
  Figures& figures = out->figures;
  figures = read;
  for (uint64_t* const bytes :
       {&figures.reserved, &figures.live, &figures.cached, &figures.peak, &figures.host, &figures.capacity})
    *bytes = std::min(*bytes, kMostBytes);
  if (figures.limit > kMostBytes) figures.limit = kUnlimited;
  for (uint64_t* const count : {&figures.reused, &figures.first_uses, &figures.waits_avoided})
    *count = std::min(*count, kMostCount);
  return true;
}

}  // namespace cupool::neighbours
