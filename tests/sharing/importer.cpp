// The second process: opens every offered block, all of them at once, and looks at each through both styles
// of use.
#include <algorithm>
#include <vector>

#include "share.hpp"

namespace share {

namespace {

struct Opened {
  Offer offer;
  CUdeviceptr block;
};

unsigned count_wrong(CUdeviceptr block, size_t bytes, unsigned char value) {
  std::vector<unsigned char> host(bytes, static_cast<unsigned char>(~value));
  MUST(cuMemcpyDtoH(host.data(), block, bytes));
  return count_others(host.data(), bytes, value);
}

// The pointer that an open gives is the block's start; so is the base of its range, wherever in it one asks.
unsigned wrong_ranges(const Opened& opened) {
  unsigned wrong = 0;
  for (const size_t at : {size_t{0}, opened.offer.bytes / 2, opened.offer.bytes - 1}) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    MUST(cuMemGetAddressRange(&base, &bytes, opened.block + at));
    wrong += base != opened.block || bytes != opened.offer.bytes;
    CUdeviceptr start = 0;
    MUST(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, opened.block + at));
    wrong += start != opened.block;
  }
  return wrong;
}

void use(const Opened& opened, Verdict* verdict) {
  const Offer& offer = opened.offer;
  verdict->wrong += count_wrong(opened.block, offer.bytes, offer.value);
  verdict->wrong += wrong_ranges(opened);
  const size_t half = offer.bytes / 2;
  MUST(cuMemsetD8(opened.block + half, offer.value ^ kChange, offer.bytes - half));
  MUST(cuCtxSynchronize());
}

// A second open gives the same place, and the first close does not end it.
void open_again(const Opened& opened, Verdict* verdict) {
  CUdeviceptr again = 0;
  MUST(cuIpcOpenMemHandle(&again, opened.offer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  verdict->wrong += again != opened.block;
  MUST(cuIpcCloseMemHandle(again));
  const unsigned char changed = opened.offer.value ^ kChange;
  verdict->wrong += count_wrong(opened.block + opened.offer.bytes - 1, 1, changed);
}

}  // namespace

int import_all(int from, int to) {
  begin_device();
  Verdict verdict;
  std::vector<Opened> all;
  for (Offer offer; receive(from, &offer) && offer.bytes != 0;) {
    CUdeviceptr block = 0;
    const CUresult result = cuIpcOpenMemHandle(&block, offer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result != CUDA_SUCCESS) {
      ++verdict.refused;
      continue;
    }
    ++verdict.opened;
    all.push_back({offer, block});
  }
  for (const Opened& opened : all) use(opened, &verdict);
  for (const Opened& opened : all) open_again(opened, &verdict);
  // In an order of their own: every third first, the rest backwards.
  std::stable_partition(all.begin(), all.end(), [n = 0](const Opened&) mutable { return n++ % 3 == 0; });
  while (!all.empty()) {
    const CUdeviceptr block = all.back().block;
    MUST(cuIpcCloseMemHandle(block));
    all.pop_back();
    for (const Opened& rest : all) {
      if (rest.block == block) continue;
      verdict.wrong +=
          count_wrong(rest.block, 1, rest.offer.bytes > 1 ? rest.offer.value : rest.offer.value ^ kChange);
    }
  }
  verdict.wrong += cuIpcCloseMemHandle(0x7f0000000200) != CUDA_ERROR_INVALID_VALUE;
  send(to, verdict);
  return 0;
}

}  // namespace share
