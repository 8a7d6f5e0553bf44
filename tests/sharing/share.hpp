// What the two processes of `share` say to each other. The first one allocates, exports and in the end
// checks; the second, a fresh program, opens, checks, writes and closes. Every block travels as one Offer
// through a pipe.
#pragma once

#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "pipes.hpp"

namespace share {

struct Offer {
  CUipcMemHandle handle;
  size_t bytes;
  size_t inside;  // the handle was taken of an address so far into the block
  unsigned char value;
};

// What the second process found.
struct Verdict {
  unsigned opened = 0;
  unsigned refused = 0;
  unsigned wrong = 0;
};

inline constexpr unsigned char kChange = 0x55;  // the importer writes value ^ kChange over the second half

[[noreturn]] inline void die(const char* what, int code) {
  std::fprintf(stderr, "share: %s: %d\n", what, code);
  std::exit(2);
}
#define MUST(call)                                                                       \
  do {                                                                                   \
    const CUresult must_result_ = (call);                                                \
    if (must_result_ != CUDA_SUCCESS) share::die(#call, static_cast<int>(must_result_)); \
  } while (0)

using pipes::receive;
using pipes::send;

// How many bytes are not `value`. Mostly none is, which a comparison of the bytes with their neighbours shows
// at once.
inline unsigned count_others(const unsigned char* bytes, size_t count, unsigned char value) {
  if (count == 0 || (bytes[0] == value && std::memcmp(bytes, bytes + 1, count - 1) == 0)) return 0;
  return static_cast<unsigned>(
      std::count_if(bytes, bytes + count, [=](unsigned char c) { return c != value; }));
}

inline void begin_device() {
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
}

int import_all(int from, int to);

}  // namespace share
