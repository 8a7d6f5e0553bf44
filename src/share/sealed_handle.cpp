// See sealed_handle.hpp.
#include "share/sealed_handle.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <initializer_list>

namespace cupool::share {

namespace {

constexpr size_t kDriverBytes = 56;
constexpr uint64_t kSecretlessKey =
    0x63757030306c3032;  // names the format: another layout takes another number

// The last eight bytes. Small blocks start on 512 bytes, large ones on 16 KiB; the lowest bit says which.
constexpr uint64_t kSmallUnit = 512;
constexpr unsigned kSmallSizeBits = 20;
constexpr uint64_t kLargeUnit = 16 << 10;
constexpr unsigned kLargeSizeBits = 37;

struct Parts {
  uint64_t unit;
  unsigned size_bits;
};
constexpr Parts parts(bool large) {
  return large ? Parts{kLargeUnit, kLargeSizeBits} : Parts{kSmallUnit, kSmallSizeBits};
}

bool pack(const Place& place, uint64_t* word) {
  for (const bool large : {false, true}) {
    const Parts form = parts(large);
    const uint64_t steps = place.offset / form.unit;
    if (place.offset % form.unit != 0 || place.bytes == 0 || place.bytes >> form.size_bits != 0) continue;
    if (steps >> (63 - form.size_bits) != 0) continue;
    *word = ((steps << form.size_bits | place.bytes) << 1) | (large ? 1 : 0);
    return true;
  }
  return false;
}

Place unpack(uint64_t word) {
  const Parts form = parts((word & 1) != 0);
  word >>= 1;
  return {(word >> form.size_bits) * form.unit, word & ((uint64_t{1} << form.size_bits) - 1)};
}

// ---- Mixing. All 64 bytes go through rounds that make every bit of the result depend on every bit of the
// input. A sealed handle with one altered bit unseals to 64 bytes of noise, not to a handle with one field
// changed, which the driver might open at another place.

using Words = std::array<uint64_t, 8>;
constexpr size_t kHalf = 4;
constexpr int kRounds = 6;
// A handle is mixed with the first key that changes every byte the driver reads.
constexpr unsigned kKeys = 16;
// The driver leaves many of its 56 bytes zero, which tells a handle from noise: 56 random bytes have ten
// zeros once in 2^45 times.
constexpr int kFewestZeros = 10;

uint64_t stir(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
  return word ^ (word >> 31);
}

// The round function: what one half contributes to the other.
std::array<uint64_t, kHalf> digest(const uint64_t* half, uint64_t key) {
  uint64_t state = stir(key);
  for (size_t i = 0; i < kHalf; ++i) state = stir(state ^ half[i]) + (i + 1) * 0x9E3779B97F4A7C15u;
  std::array<uint64_t, kHalf> out;
  for (size_t i = 0; i < kHalf; ++i) out[i] = stir(state + i * 0xD1342543DE82EF95u);
  return out;
}

void mix(Words& words, unsigned key, bool back) {
  for (int i = 0; i < kRounds; ++i) {
    const int round = back ? kRounds - 1 - i : i;
    uint64_t* const from = words.data() + (round % 2 == 0 ? 0 : kHalf);
    uint64_t* const to = words.data() + (round % 2 == 0 ? kHalf : 0);
    const auto change = digest(from, kSecretlessKey + (uint64_t{key} << 32) + static_cast<uint64_t>(round));
    for (size_t j = 0; j < kHalf; ++j) to[j] ^= change[j];
  }
}

bool differs_everywhere(const Handle& a, const Handle& b) {
  for (size_t i = 0; i < kDriverBytes; ++i) {
    if (a[i] == b[i]) return false;
  }
  return true;
}

bool looks_like_the_drivers(const Handle& handle) {
  return std::count(handle.begin(), handle.begin() + kDriverBytes, 0) >= kFewestZeros;
}

uint64_t last_word(const Handle& handle) {
  uint64_t word;
  std::memcpy(&word, handle.data() + kDriverBytes, sizeof word);
  return word;
}

void set_last_word(Handle& handle, uint64_t word) {
  std::memcpy(handle.data() + kDriverBytes, &word, sizeof word);
}

}  // namespace

bool seal(Handle* handle, const Place& place) {
  uint64_t word = 0;
  if (last_word(*handle) != 0 || !looks_like_the_drivers(*handle) || !pack(place, &word)) return false;
  Handle open = *handle;
  set_last_word(open, word);
  for (unsigned key = 0; key < kKeys; ++key) {
    auto words = std::bit_cast<Words>(open);
    mix(words, key, false);
    const auto mixed = std::bit_cast<Handle>(words);
    if (last_word(mixed) == 0 || !differs_everywhere(mixed, *handle)) continue;
    *handle = mixed;
    return true;
  }
  return false;
}

bool unseal(Handle* handle, Place* place) {
  // The driver's own handles end in zeros.
  if (last_word(*handle) == 0) return false;
  for (unsigned key = 0; key < kKeys; ++key) {
    auto words = std::bit_cast<Words>(*handle);
    mix(words, key, true);
    auto open = std::bit_cast<Handle>(words);
    const uint64_t word = last_word(open);
    const Place found = unpack(word);
    uint64_t again = 0;
    if (!looks_like_the_drivers(open) || !pack(found, &again) || again != word) continue;
    set_last_word(open, 0);
    *handle = open;
    *place = found;
    return true;
  }
  return false;
}

}  // namespace cupool::share
