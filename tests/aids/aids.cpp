// aids fill: prints which bytes new blocks hold, fresh and recycled, device and managed memory.
// aids frees: frees what must not be freed, from functions with names of their own.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "aids: %s: %d\n", what, static_cast<int>(result));
  std::exit(2);
}
#define MUST(call) must((call), #call)

constexpr size_t kSizes[] = {1, 513, 40000, 3 << 20, 30 << 20};

// "a5" when all bytes are the same, "mixed" when not.
void print_bytes(const char* what, CUdeviceptr block, size_t bytes) {
  std::vector<unsigned char> host(bytes);
  MUST(cuMemcpyDtoH(host.data(), block, bytes));
  if (std::memcmp(host.data(), host.data() + 1, bytes - 1) == 0) {
    std::printf("%s %zu: %02x\n", what, bytes, host[0]);
  } else {
    std::printf("%s %zu: mixed\n", what, bytes);
  }
}

void fill() {
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int round = 0; round < 3; ++round) {
    std::vector<CUdeviceptr> blocks;
    for (const size_t bytes : kSizes) {
      CUdeviceptr block = 0;
      MUST(cuMemAlloc(&block, bytes));
      print_bytes(round == 0 ? "fresh" : "recycled", block, bytes);
      blocks.push_back(block);
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      // Still queued when the block is freed: what fills it must come after.
      MUST(cuMemsetD8Async(blocks[i], 0x11, kSizes[i], stream));
      MUST(cuMemFree(blocks[i]));
    }
  }
  for (int round = 0; round < 2; ++round) {
    CUdeviceptr block = 0;
    MUST(cuMemAllocManaged(&block, 5000, CU_MEM_ATTACH_GLOBAL));
    const auto* const seen = reinterpret_cast<unsigned char*>(block);
    std::printf("managed: %02x %02x\n", seen[0], seen[4999]);
    std::memset(reinterpret_cast<void*>(block), 0x22, 5000);
    MUST(cuMemFree(block));
    MUST(cuCtxSynchronize());
  }
}

}  // namespace

extern "C" {

[[gnu::noinline]] void frees_twice() {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, 1000));
  MUST(cuMemFree(block));
  std::printf("twice: %d\n", static_cast<int>(cuMemFree(block)));
}

[[gnu::noinline]] void frees_inside() {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, 1000));
  std::printf("inside: %d\n", static_cast<int>(cuMemFree(block + 100)));
  MUST(cuMemFree(block));
}

[[gnu::noinline]] void frees_the_unknown() {
  std::printf("unknown: %d\n", static_cast<int>(cuMemFree(0x7f0000000200)));
}

[[gnu::noinline]] void frees_after_the_context() {
  CUcontext before = nullptr;
  CUcontext own = nullptr;
  CUdevice device = 0;
  CUdeviceptr block = 0;
  MUST(cuCtxGetCurrent(&before));
  MUST(cuCtxGetDevice(&device));
  MUST(cuCtxCreate(&own, nullptr, 0, device));
  MUST(cuMemAlloc(&block, 6000));
  MUST(cuCtxDestroy(own));
  MUST(cuCtxSetCurrent(before));
  std::printf("late: %d\n", static_cast<int>(cuMemFree(block)));
}

}  // extern "C"

int main(int count, char** words) {
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  if (count > 1 && std::strcmp(words[1], "fill") == 0) {
    fill();
  } else if (count > 1 && std::strcmp(words[1], "late") == 0) {
    frees_after_the_context();
  } else {
    frees_twice();
    frees_inside();
    frees_the_unknown();
  }
  return 0;
}
