// See saved_return.hpp.
#include "trace/saved_return.hpp"

namespace cupool::trace {
namespace {

constexpr size_t kMostInstructions = 24;

constexpr uint32_t kReturn = 0xD65F03C0;
constexpr uint32_t kMoveFrame = 0x910003FD;  // mov x29, sp

bool is_call(uint32_t code) { return code >> 26 == 0x25 || (code & 0xFFFFFC1F) == 0xD63F0000; }  // bl, blr
bool lowers_stack(uint32_t code) { return (code & 0xFF8003FF) == 0xD10003FF; }  // sub sp, sp, #
bool pushes_frame(uint32_t code) { return (code & 0xFFC07FFF) == 0xA9807BFD; }  // stp x29, x30, [sp, #]!
bool stores_frame(uint32_t code) { return (code & 0xFFC07FFF) == 0xA9007BFD; }  // stp x29, x30, [sp, #]

// The signed offset of a pair of registers, in bytes.
int pair_offset(uint32_t code) {
  const int words = static_cast<int>(code >> 15 & 0x7F);
  return (words < 64 ? words : words - 128) * 8;
}

int immediate(uint32_t code) {
  const int bytes = static_cast<int>(code >> 10 & 0xFFF);
  return (code >> 22 & 1) != 0 ? bytes << 12 : bytes;
}

}  // namespace

size_t depth_of_saved_return(const uint32_t* code) {
  int lowered = 0;
  for (size_t i = 0; i < kMostInstructions; ++i) {
    const uint32_t next = code[i];
    if (next == kReturn || next == kMoveFrame || is_call(next)) return 0;
    if (lowers_stack(next)) lowered += immediate(next);
    if (!pushes_frame(next) && !stores_frame(next)) continue;
    const int depth = lowered - pair_offset(next) - static_cast<int>(sizeof(uint64_t));
    return depth > 0 ? static_cast<size_t>(depth) : 0;
  }
  return 0;
}

}  // namespace cupool::trace
