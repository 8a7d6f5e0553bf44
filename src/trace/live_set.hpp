// What the program holds, as the gathered events tell it: for the live sets in a trace. Events of several
// threads come in any order; for each place the latest counts, so a free is remembered for a while. A table
// with open addressing in pages of its own. The caller's lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trace/events.hpp"

namespace cupool::trace {

class LiveSet {
 public:
  struct Item {
    uint64_t address = 0;  // 0: an empty place
    uint64_t time = 0;
    uint64_t began = 0;  // when it was allocated; 0: not known (yet)
    uint64_t asked = 0;
    uint64_t more = 0;
    uint64_t context = 0;
    uint32_t thread = 0;
    uint32_t stack = 0;
    uint32_t freed_stack = 0;  // where it was given back
    uint16_t call = 0;
    uint8_t kind = 0;
    uint8_t device = 0;
    bool is_live = false;
    bool went_with_context = false;
  };

  void allocated(uint64_t time, uint32_t thread, const told::Allocated& what);
  void freed(uint64_t time, const told::Freed& what);
  // All of a context but what outlives it.
  void context_ended(uint64_t time, uint64_t context);
  // Forgets frees before that time: no older event can come any more.
  void forget_frees(uint64_t before) { oldest_ = before; }

  template <typename F>
  void for_each(F&& f) const {
    for (size_t i = 0; i < places_; ++i) {
      if (items_[i].address != 0 && items_[i].is_live) f(items_[i]);
    }
  }
  // Frees that are still remembered.
  template <typename F>
  void for_each_gone(F&& f) const {
    for (size_t i = 0; i < places_; ++i) {
      if (items_[i].address != 0 && !items_[i].is_live && items_[i].time >= oldest_) f(items_[i]);
    }
  }
  // From now on some ten thousand frees are remembered longer, the latest ones.
  void remember_frees() { remembers_ = true; }
  // The live block of the pool at that address or around it, or else the one that was freed last.
  bool find_around(uint64_t address, Item* out) const;
  size_t count() const { return live_; }
  bool holds(uint64_t address, uint8_t kind) const {
    const Item* const item = const_cast<LiveSet*>(this)->find(address, kind);
    return item != nullptr && item->address != 0 && item->is_live;
  }
  // False: the host had no memory for it, and it is empty for good.
  bool is_complete() const { return !failed_; }
  void clear();

 private:
  Item* find(uint64_t address, uint8_t kind);
  Item* find_or_add(uint64_t address, uint8_t kind);
  bool grow();
  uint64_t oldest_to_keep() const;

  Item* items_ = nullptr;
  size_t places_ = 0;  // a power of two
  size_t used_ = 0;    // frees that are remembered included
  size_t live_ = 0;
  uint64_t oldest_ = 0;
  bool failed_ = false;
  bool remembers_ = false;
};

// Memory of these kinds is told apart by more than its address: a handle may be an address of something else.
inline constexpr uint8_t space_of(uint64_t kind) {
  switch (static_cast<Kind>(kind)) {
    case Kind::kPhysical:
      return 1;
    case Kind::kArray:
      return 2;
    case Kind::kPinned:
    case Kind::kRegistered:
      return 3;
    default:
      return 0;
  }
}
// Whether the end of its context ends it.
inline constexpr bool ends_with_context(uint64_t kind) { return static_cast<Kind>(kind) != Kind::kPhysical; }

}  // namespace cupool::trace
