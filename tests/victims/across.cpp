// Victim: copies by one context into and out of memory of another, which was just freed and allocated again
// with work on it unfinished (`reused`), is freed at once (`freed`), or is used at once by a stream of its
// own (`ordered`). Without peer access: none is needed for a copy. One line for each copy that brought wrong
// bytes. `shaped`: copies of rows that name memory in each way there is; a line for each says how it went.
// `devices`: the contexts are of two devices; ends with 77 where there is one.
#include <cuda.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "linked_api.hpp"
#include "victim.hpp"

namespace {

constexpr size_t kBytes = size_t{24} << 20;
constexpr unsigned kOld = 1;
constexpr unsigned char kNew = 7;

struct Place {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUstream blocking = nullptr;
  CUfunction fill = nullptr;
  CUfunction spin = nullptr;

  Place(CUdevice device) {
    VICTIM_CHECK(cuCtxCreate(&context, nullptr, 0, device));
    CUmodule module = nullptr;
    VICTIM_CHECK(cuModuleLoadData(&module, victim::kKernels));
    VICTIM_CHECK(cuModuleGetFunction(&fill, module, "fill"));
    VICTIM_CHECK(cuModuleGetFunction(&spin, module, "spin"));
    VICTIM_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    VICTIM_CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  }
  void enter() const { VICTIM_CHECK(cuCtxSetCurrent(context)); }
  CUdeviceptr allocate() const {
    CUdeviceptr block = 0;
    enter();
    VICTIM_CHECK(cuMemAlloc_v2(&block, kBytes));
    return block;
  }
  void free(CUdeviceptr block) const {
    enter();
    VICTIM_CHECK(cuMemFree_v2(block));
  }
  // Some milliseconds later.
  void fill_late(CUdeviceptr block, CUstream by) const {
    unsigned long long ns = 20'000'000;
    size_t bytes = kBytes;
    unsigned value = kOld;
    void* wait[] = {&ns};
    void* parameters[] = {&block, &bytes, &value};
    enter();
    VICTIM_CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, by, wait, nullptr));
    VICTIM_CHECK(cuLaunchKernel(fill, 1024, 1, 1, 256, 1, 1, 0, by, parameters, nullptr));
  }
  bool is_new(CUdeviceptr block) const {
    std::vector<unsigned char> bytes(kBytes);
    enter();
    VICTIM_CHECK(cuCtxSynchronize());
    VICTIM_CHECK(cuMemcpyDtoH_v2(bytes.data(), block, kBytes));
    for (const unsigned char byte : bytes) {
      if (byte != kNew) return false;
    }
    return true;
  }
};

struct Blocks {
  CUdeviceptr to;
  CUdeviceptr from;
};

CUDA_MEMCPY3D_PEER box(const Place& owner, const Place& maker, const Blocks& blocks) {
  constexpr size_t kRow = 4096;
  CUDA_MEMCPY3D_PEER copy = {};
  copy.dstMemoryType = copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = blocks.to;
  copy.dstContext = owner.context;
  copy.srcDevice = blocks.from;
  copy.srcContext = maker.context;
  copy.dstPitch = copy.srcPitch = copy.WidthInBytes = kRow;
  copy.Height = copy.dstHeight = copy.srcHeight = kBytes / kRow;
  copy.Depth = 1;
  return copy;
}

using Make = CUresult (*)(const Place& owner, const Place& maker, const Blocks& blocks);
struct Named {
  const char* name;
  Make make;
};

// Into memory of `owner`, by `maker`.
const std::array kCopies = {
    Named{"cuMemcpyPeer",
          [](const Place& owner, const Place& maker, const Blocks& blocks) {
            return cuMemcpyPeer(blocks.to, owner.context, blocks.from, maker.context, kBytes);
          }},
    Named{"cuMemcpyPeerAsync",
          [](const Place& owner, const Place& maker, const Blocks& blocks) {
            return cuMemcpyPeerAsync(blocks.to, owner.context, blocks.from, maker.context, kBytes,
                                     maker.stream);
          }},
    Named{"cuMemcpy3DPeer",
          [](const Place& owner, const Place& maker, const Blocks& blocks) {
            const CUDA_MEMCPY3D_PEER copy = box(owner, maker, blocks);
            return cuMemcpy3DPeer(&copy);
          }},
    Named{"cuMemcpy3DPeerAsync",
          [](const Place& owner, const Place& maker, const Blocks& blocks) {
            const CUDA_MEMCPY3D_PEER copy = box(owner, maker, blocks);
            return cuMemcpy3DPeerAsync(&copy, maker.stream);
          }},
    Named{"cuMemcpyDtoD",
          [](const Place&, const Place&, const Blocks& blocks) {
            return cuMemcpyDtoD_v2(blocks.to, blocks.from, kBytes);
          }},
    Named{"cuMemcpyAsync",
          [](const Place&, const Place& maker, const Blocks& blocks) {
            return cuMemcpyAsync(blocks.to, blocks.from, kBytes, maker.stream);
          }},
};

// The copy comes into a block whose memory had work before its last free.
int reused(const Place& owner, const Place& maker) {
  int wrong = 0;
  const CUdeviceptr source = maker.allocate();
  VICTIM_CHECK(cuMemsetD8_v2(source, kNew, kBytes));
  VICTIM_CHECK(cuCtxSynchronize());
  for (const Named& copy : kCopies) {
    const CUdeviceptr old = owner.allocate();
    owner.fill_late(old, owner.stream);
    owner.free(old);
    const CUdeviceptr block = owner.allocate();
    maker.enter();
    VICTIM_CHECK(copy.make(owner, maker, {block, source}));
    VICTIM_CHECK(cuCtxSynchronize());
    if (!owner.is_new(block)) {
      std::printf("%s: the work of the block's old life came after it\n", copy.name);
      ++wrong;
    }
    owner.free(block);
  }
  maker.free(source);
  return wrong;
}

// The copy leaves a block that is freed at once: it is work of both contexts, so the free waits for it.
int freed(const Place& owner, const Place& maker) {
  int wrong = 0;
  for (const bool is_box : {false, true}) {
    const CUdeviceptr source = maker.allocate();
    const CUdeviceptr behind = maker.allocate();
    VICTIM_CHECK(cuMemsetD8_v2(source, kNew, kBytes));
    VICTIM_CHECK(cuCtxSynchronize());
    const CUdeviceptr block = owner.allocate();
    const CUDA_MEMCPY3D_PEER copy = box(owner, maker, {block, source});
    // The owner's stream is busy, and so the copy is late.
    owner.fill_late(block, owner.blocking);
    VICTIM_CHECK(is_box ? cuMemcpy3DPeer(&copy)
                        : cuMemcpyPeer(block, owner.context, source, maker.context, kBytes));
    maker.free(source);
    // Asks for more than one free block has, so that mapped memory moves.
    CUdeviceptr larger = 0;
    VICTIM_CHECK(cuMemAlloc_v2(&larger, 2 * kBytes));
    VICTIM_CHECK(cuMemsetD8_v2(larger, 0, 2 * kBytes));
    if (!owner.is_new(block)) {
      std::printf("the copy of a block that was freed after it brought wrong bytes\n");
      ++wrong;
    }
    owner.free(block);
    maker.free(larger);
    maker.free(behind);
  }
  return wrong;
}

// A copy that names no stream comes after earlier and before later work of the blocking streams of both
// contexts.
int ordered(const Place& owner, const Place& maker) {
  int wrong = 0;
  const CUdeviceptr source = maker.allocate();
  VICTIM_CHECK(cuMemsetD8_v2(source, kNew, kBytes));
  VICTIM_CHECK(cuCtxSynchronize());
  const CUdeviceptr block = owner.allocate();
  const CUdeviceptr second = owner.allocate();
  for (const Named& copy : kCopies) {
    if (std::string(copy.name).find("Async") != std::string::npos) continue;
    owner.fill_late(block, owner.blocking);
    maker.enter();
    VICTIM_CHECK(copy.make(owner, maker, {block, source}));
    owner.enter();
    VICTIM_CHECK(cuMemcpyDtoDAsync_v2(second, block, kBytes, owner.blocking));
    if (!owner.is_new(second)) {
      std::printf("%s: later work of the other context did not wait for it\n", copy.name);
      ++wrong;
    }
  }
  return wrong;
}

// Whether the driver takes a device's memory for the host's is its own affair.
int shaped(const Place& owner, const Place& maker) {
  constexpr size_t kRow = 4096;
  constexpr size_t kFirst = 3;
  const CUdeviceptr source = maker.allocate();
  VICTIM_CHECK(cuMemsetD8_v2(source, kNew, kBytes));
  VICTIM_CHECK(cuCtxSynchronize());
  const CUdeviceptr block = owner.allocate();
  for (const CUmemorytype type : {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_HOST}) {
    owner.enter();
    VICTIM_CHECK(cuMemsetD8_v2(block, kNew, kBytes));
    VICTIM_CHECK(cuMemsetD8_v2(block + kFirst * kRow, kOld, kRow));
    VICTIM_CHECK(cuCtxSynchronize());
    CUDA_MEMCPY2D copy = {};
    copy.dstMemoryType = copy.srcMemoryType = type;
    if (type == CU_MEMORYTYPE_HOST) {
      copy.dstHost = reinterpret_cast<void*>(block);
      copy.srcHost = reinterpret_cast<const void*>(source);
    } else {
      copy.dstDevice = block;
      copy.srcDevice = source;
    }
    copy.dstY = kFirst;
    copy.dstPitch = copy.srcPitch = copy.WidthInBytes = kRow;
    copy.Height = 1;
    maker.enter();
    const CUresult result = cuMemcpy2D_v2(&copy);
    std::printf("memory type %d: result %d, %s\n", type, result, owner.is_new(block) ? "new" : "old");
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const bool has_two = count > 2 && std::strcmp(words[2], "devices") == 0;
  int devices = 0;
  VICTIM_CHECK(cuInit(0));
  VICTIM_CHECK(cuDeviceGetCount(&devices));
  if (has_two && devices < 2) return 77;
  const Place owner(0);
  const Place maker(has_two ? 1 : 0);
  const std::string what = count > 1 ? words[1] : "";
  if (what == "freed") return freed(owner, maker);
  if (what == "shaped") return shaped(owner, maker);
  return what == "ordered" ? ordered(owner, maker) : reused(owner, maker);
}
