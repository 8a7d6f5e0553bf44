// See export_token.hpp.
#include "share/export_token.hpp"

#include <bit>

namespace cupool::share {
namespace {

using std::size_t;
using Words = std::array<uint64_t, 8>;
constexpr size_t kMasked = 2;  // the first masked word
constexpr size_t kLast = 7;

constexpr uint64_t kMagic = 0x7431'6c6f'6f70'7563;  // "cupool1t": another layout takes another number
constexpr Key kMask = {0x6d61736b'74686973, 0x63757030'306c3032};

// SipHash-2-4 of whole words: short, and a check cannot be forged without the key.
uint64_t digest(const Key& key, const uint64_t* words, size_t count) {
  uint64_t a = key.low ^ 0x736f6d6570736575, b = key.high ^ 0x646f72616e646f6d;
  uint64_t c = key.low ^ 0x6c7967656e657261, d = key.high ^ 0x7465646279746573;
  const auto round = [&] {
    a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
    c += d, d = std::rotl(d, 16) ^ c;
    a += d, d = std::rotl(d, 21) ^ a;
    c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
  };
  const auto take = [&](uint64_t word) {
    d ^= word;
    round(), round();
    a ^= word;
  };
  for (size_t i = 0; i < count; ++i) take(words[i]);
  take(uint64_t{count * sizeof *words} << 56);
  c ^= 0xFF;
  round(), round(), round(), round();
  return a ^ b ^ c ^ d;
}

Words words_of(const ExportToken& token) {
  return {kMagic, token.instance, token.pid, token.start, token.bytes, token.life, token.check, 0};
}

void mask(Words& words) {
  for (size_t i = kMasked; i < kLast; ++i) {
    const uint64_t place[] = {words[1], i};
    words[i] ^= digest(kMask, place, 2);
  }
}

}  // namespace

uint64_t check_of(const ExportToken& token, const Key& key) {
  ExportToken open = token;
  open.check = 0;
  const Words words = words_of(open);
  return digest(key, words.data(), words.size());
}

Handle to_handle(const ExportToken& token) {
  Words words = words_of(token);
  mask(words);
  return std::bit_cast<Handle>(words);
}

bool from_handle(const Handle& handle, ExportToken* out) {
  auto words = std::bit_cast<Words>(handle);
  if (words[0] != kMagic || words[kLast] != 0) return false;
  mask(words);
  if (words[2] >> 32 != 0) return false;
  *out = {words[1], static_cast<uint32_t>(words[2]), words[3], words[4], words[5], words[6]};
  return true;
}

}  // namespace cupool::share
