// See life_table.hpp.
#include "see/life_table.hpp"

#include <algorithm>

namespace cupool::see {

void LifeTable::grow() {
  const size_t places = std::max<size_t>(1024, keys_.size() * 2);
  std::vector<uint64_t> keys(places, kEmpty);
  std::vector<uint32_t> lives(places, kNoLife);
  keys.swap(keys_);
  lives.swap(lives_);
  shift_ = 64;
  for (size_t n = places; n > 1; n >>= 1) --shift_;
  used_ = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] != kEmpty) *add(keys[i]) = lives[i];
  }
}

uint32_t* LifeTable::find(uint64_t key) {
  if (keys_.empty()) return nullptr;
  for (size_t i = home(key);; i = (i + 1) & (keys_.size() - 1)) {
    if (keys_[i] == key) return &lives_[i];
    if (keys_[i] == kEmpty) return nullptr;
  }
}

uint32_t* LifeTable::add(uint64_t key) {
  if (key == kEmpty) key = kEmpty - 1;
  if ((used_ + 1) * 2 > keys_.size()) grow();
  for (size_t i = home(key);; i = (i + 1) & (keys_.size() - 1)) {
    if (keys_[i] == key) return &lives_[i];
    if (keys_[i] != kEmpty) continue;
    keys_[i] = key;
    lives_[i] = kNoLife;
    ++used_;
    return &lives_[i];
  }
}

void LifeTable::erase(uint64_t key) {
  if (keys_.empty()) return;
  const size_t mask = keys_.size() - 1;
  size_t i = home(key);
  while (keys_[i] != key) {
    if (keys_[i] == kEmpty) return;
    i = (i + 1) & mask;
  }
  // What stands behind it moves up, unless it is at home there.
  for (size_t next = (i + 1) & mask; keys_[next] != kEmpty; next = (next + 1) & mask) {
    const size_t at = home(keys_[next]);
    if (((next - at) & mask) < ((next - i) & mask)) continue;
    keys_[i] = keys_[next];
    lives_[i] = lives_[next];
    i = next;
  }
  keys_[i] = kEmpty;
  --used_;
}

}  // namespace cupool::see
