// Free ranges by size. Under the lock of the owning Ranges; writes only the links of a range.
#include "pool/bins.hpp"

#include <algorithm>

namespace cupool::pool {

size_t Bins::next_bin(size_t from) const {
  if (from >= kBins) return kBins;
  size_t word = from / 64;
  uint64_t bits = filled_[word] & (~uint64_t{0} << (from % 64));
  while (bits == 0) {
    if (++word == filled_.size()) return kBins;
    bits = filled_[word];
  }
  return word * 64 + static_cast<size_t>(std::countr_zero(bits));
}

Range* Bins::best_in(size_t bin, uint64_t bytes, uint64_t most, Epoch limit) const {
  Range* best = nullptr;
  int compared = 0;
  for (RangeLink* link = heads_[bin].next; link != &heads_[bin] && compared < kMostCompared;
       link = link->next, ++compared) {
    Range* const range = static_cast<Range*>(link);
    if (range->bytes < bytes || range->bytes > most || range->stamp > limit) continue;
    const bool better = best == nullptr || range->bytes < best->bytes ||
                        (range->bytes == best->bytes && range->start < best->start);
    if (better) best = range;
  }
  return best;
}

Range* Bins::best_fit(uint64_t bytes, uint64_t most, Epoch limit) const {
  for (size_t bin = next_bin(bin_of(bytes)); bin < kBins; bin = next_bin(bin + 1)) {
    if (Range* range = best_in(bin, bytes, most, limit)) return range;
  }
  return nullptr;
}

uint64_t Bins::largest() const {
  size_t last = kBins;
  for (size_t bin = next_bin(0); bin < kBins; bin = next_bin(bin + 1)) last = bin;
  uint64_t largest = 0;
  if (last == kBins) return 0;
  for (const RangeLink* link = heads_[last].next; link != &heads_[last]; link = link->next) {
    largest = std::max(largest, static_cast<const Range*>(link)->bytes);
  }
  return largest;
}

}  // namespace cupool::pool
