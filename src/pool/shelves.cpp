// See shelves.hpp: how shelves are made, filled by the batch and emptied.
#include "pool/shelves.hpp"

#include <algorithm>
#include <bit>

#include "pool/metadata.hpp"

namespace cupool::pool {

namespace {
constexpr uint64_t kLargeBlock = 32 << 10;
}

uint32_t Shelves::prepare(unsigned size_class) {
  Shelf& shelf = shelves_[size_class];
  if (shelf.room != 0) return shelf.room;
  if (shelf.ring != nullptr) return shelf.room = shelf.mask + 1;
  const uint64_t block = sizes_.bytes(size_class);
  if (block > most_[is_range(size_class)]) return 0;
  const uint64_t fewest = is_range(size_class) != 0 || block > kLargeBlock ? kFewestRanges : 2;
  const uint32_t room =
      static_cast<uint32_t>(std::clamp<uint64_t>(kMostShelfBytes / block, fewest, kMostBlocks));
  // Shelves are never freed: when a thread ends, a new one adopts its cache.
  Entry* ring = static_cast<Entry*>(calloc(std::bit_ceil(room), sizeof(Entry)));
  if (ring == nullptr) return 0;
  shelf.ring = ring;
  shelf.block_bytes = static_cast<uint32_t>(block);
  shelf.room = std::bit_ceil(room);
  shelf.mask = shelf.room - 1;
  return shelf.room;
}

bool Shelves::widen(unsigned size_class) {
  Shelf& shelf = shelves_[size_class];
  if (is_range(size_class) == 0 || shelf.count < shelf.room || shelf.room >= kMostKept || shelf.room == 0)
    return false;
  Entry* ring = static_cast<Entry*>(calloc(size_t{shelf.room} * 2, sizeof(Entry)));
  if (ring == nullptr) return false;
  for (uint32_t i = 0; i < shelf.count; ++i) ring[i] = shelf.at(i);
  free(shelf.ring);
  shelf.ring = ring;
  shelf.first = 0;
  shelf.room *= 2;
  shelf.mask = shelf.room - 1;
  return true;
}

void Shelves::put_oldest(unsigned size_class, const Entry* entries, size_t count) {
  if (count == 0) return;
  prepare(size_class);
  Shelf& shelf = shelves_[size_class];
  for (size_t i = count; i-- > 0;) shelf.push_oldest(entries[i]);
  bytes_of(size_class) += count * sizes_.bytes(size_class);
}

size_t Shelves::remove_oldest(unsigned size_class, uint32_t keep, Entry* out) {
  Shelf& shelf = shelves_[size_class];
  size_t count = 0;
  while (shelf.count > keep && count < kMostMoved) out[count++] = shelf.pop_oldest();
  if (count != 0) bytes_of(size_class) -= count * sizes_.bytes(size_class);
  return count;
}

unsigned Shelves::next_to_empty(unsigned size_class) {
  const unsigned first = is_range(size_class) != 0 ? SizeClasses::kMostSmall : 0;
  const unsigned end = is_range(size_class) != 0 ? SizeClasses::kMostClasses : SizeClasses::kMostSmall;
  unsigned& cursor = cursors_[is_range(size_class)];
  for (unsigned looked = first; looked < end; ++looked) {
    cursor = cursor + 1 < end ? std::max(cursor + 1, first) : first;
    if (shelves_[cursor].count != 0) return cursor;
  }
  return kNotKept;
}

}  // namespace cupool::pool
