// See free_blocks.hpp.
#include "pool/free_blocks.hpp"

#include <algorithm>

namespace cupool::pool {

FreeBlocks::FreeBlocks(Pool* pool, const Tenancy& tenancy)
    : tenancy_(tenancy),
      sizes_(tenancy.settings().min_block, tenancy.settings().small_limit, tenancy.settings().large_round),
      slabs_(sizes_),
      ranges_(pool, tenancy.stats()) {
  ranges_.set_split_limit(tenancy.settings().split_max);
}

// Many: a share of all that is handed out. Then a slab that is not full wastes little, and a closer fit is
// worth it.
void FreeBlocks::note_missed(unsigned size_class, uint64_t bytes) {
  constexpr uint64_t kFew = 2 << 20;
  constexpr uint64_t kShare = 64;
  if (size_class == kNotKept) return;
  if (sizes_.is_small(size_class) && size_class >= sizes_.first_fine()) return;
  const uint64_t of_class = sizes_.is_small(size_class) ? slabs_.bytes_of(size_class)
                                                        : ranges_.bytes().taken_of(sizes_.bytes(size_class));
  if (of_class < std::max(kFew, ranges_.bytes().taken() / kShare)) return;
  const unsigned fine = sizes_.fine_of(bytes);
  if (fine != kNotKept) fine_.use(sizes_, fine);
}

void FreeBlocks::give_range(Range* range, Epoch stamp) { ranges_.give(range, stamp, tenancy_.order()); }

void FreeBlocks::give_block(const Entry& entry) {
  entry.range->set_new_bytes(0);
  give_range(entry.range, entry.stamp);
}

// The range's stamp is the turn in which the large block left the ranges; it covers every life since, also
// those served from the thread's cache.
void FreeBlocks::give_large(const Entry& entry) {
  order::Timeline& order = tenancy_.order();
  entry.range->set_new_bytes(0);
  ranges_.give(entry.range, entry.stamp, order, order.sole_at_last(entry.range->stamp));
}

void FreeBlocks::give(unsigned size_class, const Entry* entries, size_t count) {
  if (!sizes_.is_small(size_class)) {
    for (size_t i = 0; i < count; ++i) give_block(entries[i]);
    return;
  }
  for (size_t given = 0; given < count;) {
    Range* emptied = nullptr;
    given += slabs_.give(size_class, entries + given, count - given, &emptied);
    if (emptied != nullptr) give_range(emptied, emptied->stamp);
  }
}

}  // namespace cupool::pool
