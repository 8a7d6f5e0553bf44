// Free ranges by size. Under the lock of the owning Ranges; writes only the nodes of a range.
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

Range* Bins::best_fit(uint64_t bytes, uint64_t most, Epoch limit) const {
  const auto is_below = [bytes](const Range& range) { return range.bytes < bytes; };
  for (size_t bin = next_bin(bin_of(bytes)); bin < kBins; bin = next_bin(bin + 1)) {
    if (Range* range = trees_[bin].first(is_below, limit)) return range->bytes <= most ? range : nullptr;
  }
  return nullptr;
}

uint64_t Bins::largest() const {
  for (size_t word = filled_.size(); word-- > 0;) {
    if (filled_[word] == 0) continue;
    const size_t bin = word * 64 + 63 - static_cast<size_t>(std::countl_zero(filled_[word]));
    return trees_[bin].highest()->bytes;
  }
  return 0;
}

Epoch Bins::latest() const {
  Epoch latest = 0;
  for (size_t bin = next_bin(0); bin < kBins; bin = next_bin(bin + 1))
    latest = std::max(latest, trees_[bin].latest());
  return latest;
}

}  // namespace cupool::pool
