// See live_set.hpp.
#include "trace/live_set.hpp"

#include <algorithm>

#include "base/pages.hpp"

namespace cupool::trace {
namespace {

constexpr size_t kFirstPlaces = 4096;

size_t slot_of(uint64_t address, uint8_t space) {
  return ((address >> 4) + space) * 0x9E3779B97F4A7C15u >> 16;
}

}  // namespace

LiveSet::Item* LiveSet::find(uint64_t address, uint8_t kind) {
  if (places_ == 0) return nullptr;
  const uint8_t space = space_of(kind);
  for (size_t i = slot_of(address, space);; ++i) {
    Item& item = items_[i & (places_ - 1)];
    if (item.address == 0 || (item.address == address && space_of(item.kind) == space)) return &item;
  }
}

// Frees before that time make room. Where they are remembered longer, the later ones of too many stay.
uint64_t LiveSet::oldest_to_keep() const {
  constexpr size_t kMostFreed = size_t{1} << 16;
  uint64_t from = oldest_;
  if (!remembers_) return from;
  from = 0;
  for (;;) {
    size_t count = 0;
    uint64_t first = oldest_;
    for (size_t i = 0; i < places_; ++i) {
      const Item& item = items_[i];
      if (item.address == 0 || item.is_live || item.time < from || item.time >= oldest_) continue;
      ++count;
      first = std::min(first, item.time);
    }
    if (count <= kMostFreed) return from;
    from = first + (oldest_ - first + 1) / 2;
  }
}

// Rehashes into a table that has room for four times what is to be kept.
bool LiveSet::grow() {
  const uint64_t oldest = oldest_to_keep();
  const auto is_kept = [&](const Item& item) {
    return item.address != 0 && (item.is_live || item.time >= oldest);
  };
  size_t kept = 0;
  for (size_t i = 0; i < places_; ++i) kept += is_kept(items_[i]) ? 1 : 0;
  size_t places = kFirstPlaces;
  while (places < 4 * kept) places *= 2;
  Item* const old = items_;
  const size_t old_places = places_;
  auto* const fresh = static_cast<Item*>(map_pages(places * sizeof(Item)));
  if (fresh == nullptr) {
    clear();
    failed_ = true;
    return false;
  }
  items_ = fresh;
  places_ = places;
  used_ = kept;
  for (size_t i = 0; i < old_places; ++i) {
    if (is_kept(old[i])) *find(old[i].address, old[i].kind) = old[i];
  }
  if (old != nullptr) unmap_pages(old, old_places * sizeof(Item));
  return true;
}

LiveSet::Item* LiveSet::find_or_add(uint64_t address, uint8_t kind) {
  if (failed_ || address == 0) return nullptr;
  if (used_ >= places_ / 2 && !grow()) return nullptr;
  Item* const item = find(address, kind);
  if (item->address == 0) {
    item->address = address;
    item->kind = kind;
    ++used_;
  }
  return item;
}

void LiveSet::allocated(uint64_t time, uint32_t thread, const told::Allocated& what) {
  Item* const item = find_or_add(what.address, static_cast<uint8_t>(what.kind));
  if (item == nullptr) return;
  // Another thread's free of it may have come first: what is known of that stays.
  const bool is_over = item->time > time;
  if (is_over && (item->is_live || item->began > time)) return;
  live_ += is_over || item->is_live ? 0 : 1;
  *item = {what.address,
           is_over ? item->time : time,
           time,
           what.asked,
           what.more,
           what.context,
           thread,
           static_cast<uint32_t>(what.stack),
           is_over ? item->freed_stack : 0,
           static_cast<uint16_t>(what.call),
           static_cast<uint8_t>(what.kind),
           static_cast<uint8_t>(what.device),
           !is_over,
           is_over && item->went_with_context};
}

void LiveSet::freed(uint64_t time, const told::Freed& what) {
  Item* const item = find_or_add(what.address, static_cast<uint8_t>(what.kind));
  // At the same moment the free came first: it was of the life before.
  if (item == nullptr || item->time > time) return;
  live_ -= item->is_live ? 1 : 0;
  item->is_live = item->went_with_context = false;
  item->time = time;
  item->freed_stack = static_cast<uint32_t>(what.stack);
}

bool LiveSet::find_around(uint64_t address, Item* out) const {
  const Item* best = nullptr;
  for (size_t i = 0; i < places_; ++i) {
    const Item& item = items_[i];
    if (item.address == 0 || space_of(item.kind) != 0 || item.kind == static_cast<uint8_t>(Kind::kDriver))
      continue;
    // (A free whose allocation nobody knows has no size.)
    if (address < item.address || address - item.address >= std::max<uint64_t>(item.asked, 1)) continue;
    const bool is_better =
        best == nullptr || (item.is_live != best->is_live ? item.is_live : item.time > best->time);
    if (is_better) best = &item;
  }
  if (best == nullptr) return false;
  *out = *best;
  return true;
}

void LiveSet::context_ended(uint64_t time, uint64_t context) {
  for (size_t i = 0; i < places_; ++i) {
    Item& item = items_[i];
    if (item.address == 0 || !item.is_live || item.context != context || item.time > time ||
        !ends_with_context(item.kind))
      continue;
    item.is_live = false;
    item.went_with_context = true;
    item.time = time;
    --live_;
  }
}

void LiveSet::clear() {
  if (items_ != nullptr) unmap_pages(items_, places_ * sizeof(Item));
  items_ = nullptr;
  places_ = used_ = live_ = 0;
  failed_ = false;
}

}  // namespace cupool::trace
