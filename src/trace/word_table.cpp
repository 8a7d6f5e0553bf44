// See word_table.hpp. A row is complete before the index names it; who loses the race for a place of the
// index leaves a row that nobody names.
#include "trace/word_table.hpp"

#include <cstring>

namespace cupool::trace {
namespace {

uint64_t hash_of(std::span<const uint64_t> words) {
  uint64_t hash = words.size();
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

// Two threads may begin at once: the second one's pages are given up again.
bool WordTable::make() {
  if (index_.load(std::memory_order_acquire) != nullptr) return true;
  const size_t row_bytes = sizeof(Row) << bits_;
  const size_t index_bytes = sizeof(std::atomic<uint32_t>) << (bits_ + 1);
  Row* rows = rows_.load(std::memory_order_acquire);
  if (rows == nullptr) {
    auto* const made = static_cast<Row*>(map_pages(row_bytes));
    if (made == nullptr) return false;
    if (!rows_.compare_exchange_strong(rows, made, std::memory_order_acq_rel)) unmap_pages(made, row_bytes);
  }
  auto* const made = static_cast<std::atomic<uint32_t>*>(map_pages(index_bytes));
  if (made == nullptr) return false;
  std::atomic<uint32_t>* none = nullptr;
  if (!index_.compare_exchange_strong(none, made, std::memory_order_acq_rel)) unmap_pages(made, index_bytes);
  return true;
}

uint64_t* WordTable::take_words(size_t count) {
  constexpr size_t kRoom = kChunkWords - 1;
  if (count > kRoom) return nullptr;
  for (;;) {
    Chunk* chunk = chunk_.load(std::memory_order_acquire);
    if (chunk != nullptr) {
      const size_t at = chunk->used.fetch_add(count, std::memory_order_relaxed);
      if (at + count <= kRoom) return chunk->words + at;
    }
    auto* const made = static_cast<Chunk*>(map_pages(sizeof(Chunk)));
    if (made == nullptr) return nullptr;
    if (!chunk_.compare_exchange_strong(chunk, made, std::memory_order_acq_rel))
      unmap_pages(made, sizeof(Chunk));
  }
}

bool WordTable::is_row(uint32_t number, uint64_t hash, std::span<const uint64_t> words) const {
  const Row& row = rows_.load(std::memory_order_relaxed)[number];
  return row.hash == hash && row.count == words.size() &&
         memcmp(row.words, words.data(), words.size_bytes()) == 0;
}

uint32_t WordTable::find(std::span<const uint64_t> words) const {
  const std::atomic<uint32_t>* const index = index_.load(std::memory_order_acquire);
  if (index == nullptr) return 0;
  const uint64_t hash = hash_of(words);
  const size_t mask = (size_t{2} << bits_) - 1;
  for (size_t i = hash;; ++i) {
    const uint32_t found = index[i & mask].load(std::memory_order_acquire);
    if (found == 0 || is_row(found, hash, words)) return found;
  }
}

uint32_t WordTable::find_or_add(std::span<const uint64_t> words, uint32_t note) {
  if (!make()) return 0;
  Row* const rows = rows_.load(std::memory_order_relaxed);
  std::atomic<uint32_t>* const index = index_.load(std::memory_order_acquire);
  const uint64_t hash = hash_of(words);
  const size_t mask = (size_t{2} << bits_) - 1;
  uint32_t made = 0;
  for (size_t i = hash;; ++i) {
    std::atomic<uint32_t>& place = index[i & mask];
    uint32_t found = place.load(std::memory_order_acquire);
    if (found == 0) {
      if (made == 0) {
        // (Looked at first, so that it cannot go around.)
        if (used_.load(std::memory_order_relaxed) + 1 >= 1u << bits_) return 0;
        made = used_.fetch_add(1, std::memory_order_acq_rel) + 1;
        if (made >= 1u << bits_) return 0;
        uint64_t* const copy = take_words(words.size());
        if (copy == nullptr) return 0;
        memcpy(copy, words.data(), words.size_bytes());
        Row& row = rows[made];
        row.hash = hash;
        row.words = copy;
        row.count = static_cast<uint32_t>(words.size());
        row.note = note;
        // Before anybody can name it: who tells the new rows must find it.
        row.state.store(State::kReady, std::memory_order_release);
      }
      if (place.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return made;
    }
    if (!is_row(found, hash, words)) continue;
    if (made != 0) rows[made].state.store(State::kTold, std::memory_order_relaxed);
    return found;
  }
}

WordTable::Found WordTable::row(uint32_t number) const {
  const Row* const rows = rows_.load(std::memory_order_acquire);
  if (rows == nullptr || number == 0 || number > last()) return {};
  const Row& row = rows[number];
  if (row.state.load(std::memory_order_acquire) == State::kEmpty) return {};
  return row.found();
}

void WordTable::forget_told() {
  first_untold_ = 1;
  Row* const rows = rows_.load(std::memory_order_acquire);
  for (uint32_t i = 1; rows != nullptr && i <= last(); ++i) {
    State told = State::kTold;
    rows[i].state.compare_exchange_strong(told, State::kReady, std::memory_order_relaxed);
  }
}

}  // namespace cupool::trace
