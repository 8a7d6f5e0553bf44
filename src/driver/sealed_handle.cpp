// See sealed_handle.hpp.
#include "driver/sealed_handle.hpp"

#include <cstring>
#include <initializer_list>

namespace cupool::driver {

namespace {

constexpr size_t kDriverBytes = 56;
constexpr uint64_t kSecretlessKey =
    0x63757030306c3031;  // names the format: another layout takes another number

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

// Changes every byte of the driver's part, in a way that depends on the place; done twice it changes nothing.
void scramble(Handle& handle, uint64_t word) {
  uint64_t state = word ^ kSecretlessKey;
  for (size_t i = 0; i < kDriverBytes; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto change = static_cast<unsigned char>(state >> 56);
    handle[i] ^= change != 0 ? change : 0xA5;
  }
}

uint64_t last_word(const Handle& handle) {
  uint64_t word;
  std::memcpy(&word, handle.data() + kDriverBytes, sizeof word);
  return word;
}

}  // namespace

bool seal(Handle* handle, const Place& place) {
  uint64_t word = 0;
  if (last_word(*handle) != 0 || !pack(place, &word)) return false;
  scramble(*handle, word);
  std::memcpy(handle->data() + kDriverBytes, &word, sizeof word);
  return true;
}

bool unseal(Handle* handle, Place* place) {
  const uint64_t word = last_word(*handle);
  const Place found = unpack(word);
  uint64_t again = 0;
  if (!pack(found, &again) || again != word) return false;
  scramble(*handle, word);
  std::memset(handle->data() + kDriverBytes, 0, sizeof word);
  *place = found;
  return true;
}

}  // namespace cupool::driver
