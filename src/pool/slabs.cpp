// Slabs of equal small blocks: made from ranges, emptied back into them, each class under its own lock.
// Records come from a store with its own lock and are never used for anything else. Nothing here calls the
// driver.
#include "pool/slabs.hpp"

#include <algorithm>
#include <bit>

#include "pool/page_map.hpp"

namespace cupool::pool {

namespace {
constexpr uint64_t kSmallestSlab = 32 << 10;
constexpr uint64_t kLargestSlab = 2 << 20;
constexpr uint64_t kFewestBlocks = 8;
constexpr uint64_t kMostBlocks = 1 << 15;  // the largest record in the store
// Bounds the sorted insertion into the list of slabs with room.
constexpr int kMostCompared = 32;
constexpr size_t kChunkBytes = 256 << 10;
constexpr size_t kCacheLine = 64;
}  // namespace

bool is_held(const Range& range) {
  const BlockRecord& record = record_of(range);
  for (uint32_t i = 0; i < record.blocks; ++i) {
    if (record.tags[i].load(std::memory_order_relaxed) != 0) return true;
  }
  // Counted before its tag is cleared.
  std::atomic_thread_fence(std::memory_order_acquire);
  return record.pending_frees.load(std::memory_order_relaxed) != 0;
}

uint64_t Slabs::slab_bytes(unsigned size_class) const {
  const uint64_t block = classes_.bytes(size_class);
  const uint64_t grown = bytes_of(size_class) / 8;
  const uint64_t wanted = std::max({kSmallestSlab, block * kFewestBlocks, std::min(grown, kLargestSlab)});
  // The larger fine classes are made to fill the largest slab.
  return size_class < classes_.first_fine() ? std::bit_ceil(wanted)
                                            : std::min(std::bit_ceil(wanted), kLargestSlab);
}

Slab* Slabs::new_slab(uint32_t blocks) {
  const unsigned bucket = static_cast<unsigned>(std::bit_width(blocks - 1));
  const size_t room = size_t{1} << bucket;
  Guard hold(store_.lock);
  Slab* slab = store_.idle[bucket];
  if (slab != nullptr) {
    store_.idle[bucket] = slab->next;
  } else {
    const size_t words = room > 64 ? room / 64 : 0;
    // Against false sharing: threads that use different slabs, or blocks of one slab 32 apart, must not share
    // a cache line.
    const size_t bytes = round_up(sizeof(Slab) + room * sizeof(Tag) + 2 * words * 8, kCacheLine);
    if (store_.left < bytes) {
      store_.chunk = static_cast<char*>(map_pages(kChunkBytes));
      store_.left = store_.chunk == nullptr ? 0 : kChunkBytes;
      if (store_.chunk == nullptr) return nullptr;
    }
    slab = new (store_.chunk) Slab();
    slab->free_bits = words == 0 ? &slab->few_bits : reinterpret_cast<uint64_t*>(slab->tags + room);
    slab->new_bits = words == 0 ? &slab->few_new_bits : slab->free_bits + words;
    slab->bucket = static_cast<uint8_t>(bucket);
    store_.chunk += bytes;
    store_.left -= bytes;
  }
  slab->blocks = slab->free_blocks = blocks;
  slab->prev = slab->next = nullptr;
  slab->closed = false;
  for (uint32_t i = 0; i < blocks; ++i) slab->tags[i].store(0, std::memory_order_relaxed);
  for (uint32_t i = 0; i < blocks; i += 64) {
    slab->free_bits[i / 64] = blocks - i >= 64 ? ~uint64_t{0} : (uint64_t{1} << (blocks - i)) - 1;
    slab->new_bits[i / 64] = 0;
  }
  return slab;
}

void Slabs::list(Class& c, Slab* slab) {
  // Low addresses are filled first, so that high slabs get a chance to empty.
  Slab* before = nullptr;
  Slab* after = c.first;
  for (int i = 0; i < kMostCompared && after != nullptr && after->start < slab->start; ++i) {
    before = after;
    after = after->next;
  }
  slab->prev = before;
  slab->next = after;
  (before != nullptr ? before->next : c.first) = slab;
  if (after != nullptr) after->prev = slab;
}

void Slabs::unlist(Class& c, Slab* slab) {
  (slab->prev != nullptr ? slab->prev->next : c.first) = slab->next;
  if (slab->next != nullptr) slab->next->prev = slab->prev;
}

size_t Slabs::take_from(Slab* slab, size_t count, Entry* out) {
  size_t taken = 0;
  for (uint32_t word = 0; taken < count && slab->free_blocks != 0; ++word) {
    while (slab->free_bits[word] != 0 && taken < count) {
      const uint32_t index = word * 64 + static_cast<uint32_t>(std::countr_zero(slab->free_bits[word]));
      const uint64_t bit = slab->free_bits[word] & -slab->free_bits[word];
      const Address first_use = (slab->new_bits[word] & bit) != 0 ? Entry::kFirstUse : 0;
      slab->free_bits[word] &= ~bit;
      slab->new_bits[word] &= ~bit;
      --slab->free_blocks;
      out[taken++] = {(slab->start + uint64_t{index} * slab->bytes_of_blocks()) | first_use, slab->range,
                      slab->stamp, slab->tags + index};
    }
  }
  return taken;
}

size_t Slabs::take(unsigned size_class, size_t count, const order::Timeline& order, order::Reach reach,
                   Entry* out) {
  Class& c = classes_state_[size_class];
  Guard hold(c.lock);
  // Read under the lock, not before: a thread that gave a block back has noted its work first.
  const Epoch limit = order.limit(reach);
  // From one slab only, and all of it if that fits: threads that share no slab share no cache line.
  for (Slab* slab = c.first; slab != nullptr; slab = slab->next) {
    if (slab->stamp > limit) continue;
    const size_t taken = take_from(slab, count, out);
    for (size_t i = 0; limit == order::kAnyStamp && i < taken; ++i) out[i].stamp = 0;
    if (slab->free_blocks == 0) unlist(c, slab);
    return taken;
  }
  return 0;
}

size_t Slabs::add(unsigned size_class, Range* range, size_t count, Entry* out) {
  const uint64_t block = classes_.bytes(size_class);
  // If there was no host memory to cut it, the range may be far larger than requested: the rest lies idle.
  Slab* slab = new_slab(static_cast<uint32_t>(std::min(range->bytes / block, kMostBlocks)));
  if (slab == nullptr) return 0;
  slab->range = range;
  slab->start = range->start;
  slab->pool = range->pool;
  slab->block_bytes.store(static_cast<uint32_t>(block), std::memory_order_relaxed);
  slab->reciprocal = static_cast<uint32_t>((uint64_t{1} << 32) / (block / kUnit) +
                                           ((uint64_t{1} << 32) % (block / kUnit) != 0));
  slab->stamp = range->stamp;
  // Blocks that reach into memory which was never handed out.
  const uint64_t old = range->bytes - range->new_bytes();
  for (uint64_t i = old / block; i < slab->blocks; ++i) slab->new_bits[i / 64] |= uint64_t{1} << (i % 64);
  range->set_new_bytes(0);
  slab->size_class.store(static_cast<uint8_t>(size_class), std::memory_order_relaxed);
  range->slab.store(slab, std::memory_order_seq_cst);
  page_map.set_all(*range, slab);
  Class& c = classes_state_[size_class];
  Guard hold(c.lock);
  c.bytes.fetch_add(range->bytes, std::memory_order_relaxed);
  const size_t taken = take_from(slab, count, out);
  slab->closed =
      slab->closed || range->segment.load(std::memory_order_seq_cst)->tainted.load(std::memory_order_seq_cst);
  if (slab->free_blocks != 0 && !slab->closed) list(c, slab);
  return taken;
}

size_t Slabs::give(unsigned size_class, const Entry* entries, size_t count, Range** emptied) {
  Class& c = classes_state_[size_class];
  *emptied = nullptr;
  Guard hold(c.lock);
  for (size_t i = 0; i < count; ++i) {
    Slab* slab = entries[i].range->slab.load(std::memory_order_relaxed);
    const uint32_t index = slab->index_of(entries[i].start());
    slab->free_bits[index / 64] |= uint64_t{1} << (index % 64);
    slab->new_bits[index / 64] |= uint64_t{entries[i].is_first_use()} << (index % 64);
    slab->stamp = std::max(slab->stamp, entries[i].stamp);
    if (++slab->free_blocks == 1 && !slab->closed) list(c, slab);
    if (slab->free_blocks != slab->blocks) continue;
    *emptied = slab->range;
    retire(c, slab);
    return i + 1;
  }
  return count;
}

bool Slabs::have_room(unsigned size_class) {
  Class& c = classes_state_[size_class];
  Guard hold(c.lock);
  return c.first != nullptr;
}

// The slab's record becomes idle; its range is handed to the caller with the slab's stamp.
void Slabs::retire(Class& c, Slab* slab) {
  if (!slab->closed) unlist(c, slab);
  Range* range = slab->range;
  c.bytes.fetch_sub(range->bytes, std::memory_order_relaxed);
  range->stamp = slab->stamp;
  uint32_t used = slab->blocks;
  while (used != 0 && (slab->new_bits[(used - 1) / 64] >> ((used - 1) % 64) & 1) != 0) --used;
  if (used != slab->blocks) range->set_new_bytes(range->bytes - uint64_t{used} * slab->bytes_of_blocks());
  range->slab.store(nullptr, std::memory_order_release);
  page_map.set_all(*range, nullptr);
  page_map.set(range->start, range);
  store(slab);
}

void Slabs::store(Slab* slab) {
  Guard hold(store_.lock);
  slab->next = store_.idle[slab->bucket];
  store_.idle[slab->bucket] = slab;
}

// Its blocks are no more, whoever held them.
void Slabs::drop(Range* range) {
  Slab* const slab = range->slab.exchange(nullptr, std::memory_order_relaxed);
  if (slab == nullptr) return;
  slab->pending_frees.store(0, std::memory_order_relaxed);
  store(slab);
}

void Slabs::drop_all() {
  for (size_t i = 0; i < classes_.small_classes(); ++i) {
    Class& c = classes_state_[i];
    Guard hold(c.lock);
    c.first = nullptr;
    c.bytes.store(0, std::memory_order_relaxed);
  }
}

void Slabs::close(Range* range) {
  // Read after the segment was tainted; add() does the two in the other order, so one sees the other.
  Slab* slab = range->slab.load(std::memory_order_seq_cst);
  if (slab == nullptr) return;
  Class& c = classes_state_[slab->class_of_blocks()];
  Guard hold(c.lock);
  if (range->slab.load(std::memory_order_relaxed) != slab || slab->closed) return;
  if (slab->free_blocks != 0) unlist(c, slab);
  slab->closed = true;
  for (uint32_t i = 0; i < slab->blocks; ++i) set_mark_bit(slab->tags[i]);
}

}  // namespace cupool::pool
