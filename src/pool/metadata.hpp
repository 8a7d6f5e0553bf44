// Host memory for the pool's own records. Objects of one type come from chunks that are never given back to
// the system and never used for another type: a look-up that races with the end of a segment (a wild pointer,
// a double free) reads an old record, not unmapped memory. The caller's lock protects an ObjectStore.
#pragma once

#include <cstddef>
#include <new>

#include "base/pages.hpp"

namespace cupool::pool {

// Idle objects are linked through one of their own fields.
template <typename T, T* T::*kNext>
class ObjectStore {
 public:
  constexpr ObjectStore() = default;

  // A default-constructed object, or null when the host has no memory.
  T* take() {
    T* const object = take_as_it_is();
    if (object != nullptr) object->reset();
    return object;
  }
  // The same without the reset, for a caller that sets every field.
  T* take_as_it_is() {
    if (idle_ != nullptr) {
      T* object = idle_;
      idle_ = object->*kNext;
      return object;
    }
    if (left_ == 0) {
      chunk_ = static_cast<T*>(map_pages(kChunkBytes));
      if (chunk_ == nullptr) return nullptr;
      left_ = kChunkBytes / sizeof(T);
    }
    --left_;
    return new (chunk_++) T();
  }

  void give(T* object) {
    object->*kNext = idle_;
    idle_ = object;
  }

 private:
  static constexpr size_t kChunkBytes = sizeof(T) > 512 ? size_t{1} << 20 : size_t{64} << 10;

  T* idle_ = nullptr;
  T* chunk_ = nullptr;
  size_t left_ = 0;
};

}  // namespace cupool::pool
