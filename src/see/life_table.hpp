// Which life a place of memory has now: open addressing, keys and the lives beside them, for millions of
// both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cupool::see {

class LifeTable {
 public:
  static constexpr uint32_t kNoLife = ~uint32_t{0};
  // Of a key, which is any number; null: it has none. Valid until the next add() or erase().
  uint32_t* find(uint64_t key);
  uint32_t* add(uint64_t key);
  void erase(uint64_t key);
  template <typename F>
  void for_each(F&& f) const {
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] != kEmpty) f(keys_[i], lives_[i]);
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  size_t home(uint64_t key) const { return (key * 0x9E3779B97F4A7C15u) >> shift_; }
  void grow();
  std::vector<uint64_t> keys_;
  std::vector<uint32_t> lives_;
  size_t used_ = 0;
  unsigned shift_ = 64;
};

}  // namespace cupool::see
