// Calls that let somebody else reach a block, or leave a mark on it: handles, tokens, attributes that are
// set.
#include <unistd.h>

#include <cstring>

#include "questions.hpp"

namespace questions {

namespace {

std::string compared(const CUipcMemHandle& a, const CUipcMemHandle& b) {
  return std::memcmp(&a, &b, sizeof a) == 0 ? "same" : "different";
}

void handles(size_t bytes) {
  CUdeviceptr p = 0, q = 0, opened = 0x1234;
  MUST(cuMemAlloc(&p, bytes));
  MUST(cuMemAlloc(&q, bytes));
  CUipcMemHandle first = {}, second = {}, other = {};
  say("cuIpcGetMemHandle", cuIpcGetMemHandle(&first, p));
  say("cuIpcGetMemHandle again", cuIpcGetMemHandle(&second, p));
  say("cuIpcGetMemHandle inside", cuIpcGetMemHandle(&second, p + bytes / 2));
  say("cuIpcGetMemHandle of another block", cuIpcGetMemHandle(&other, q), compared(first, other));
  say("cuIpcGetMemHandle to null", cuIpcGetMemHandle(nullptr, p));
  say("cuIpcOpenMemHandle of our own", cuIpcOpenMemHandle(&opened, first, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
      opened == 0x1234 ? "untouched"
      : opened == 0    ? "null"
                       : "written");
  say("cuIpcOpenMemHandle without the flag", cuIpcOpenMemHandle(&opened, first, 0));
  say("cuIpcOpenMemHandle to null", cuIpcOpenMemHandle(nullptr, first, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  say("cuIpcCloseMemHandle of a block", cuIpcCloseMemHandle(p));
  ask_all(p, bytes);
  say("cuMemFree", cuMemFree(p));
  say("cuIpcGetMemHandle after the free", cuIpcGetMemHandle(&second, p));
  say("cuMemFree of the other", cuMemFree(q));
}

void marks(size_t bytes) {
  CUdeviceptr p = 0;
  MUST(cuMemAlloc(&p, bytes));
  unsigned on = 1, off = 0;
  say("set SYNC_MEMOPS", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  ask_attributes("with SYNC_MEMOPS", p, p);
  say("clear SYNC_MEMOPS", cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  ask_attributes("without SYNC_MEMOPS", p, p);
  say("set SYNC_MEMOPS inside", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p + bytes / 2));
  ask_attributes("after SYNC_MEMOPS inside", p, p);
  say("set SYNC_MEMOPS of null", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0));
  say("set SYNC_MEMOPS to null", cuPointerSetAttribute(nullptr, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  say("set MEMORY_TYPE", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
  say("set number 99", cuPointerSetAttribute(&on, static_cast<CUpointer_attribute>(99), p));
  say("cuMemFree", cuMemFree(p));
  say("set SYNC_MEMOPS after the free", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  MUST(cuMemAlloc(&p, bytes));
  ask_attributes("of the next life", p, p);
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens = {};
  say("P2P_TOKENS", cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, p));
  say("P2P_TOKENS inside", cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, p + bytes / 2));
  CUmemLocation here = {};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  here.id = device();
  say("cuMemAdvise", cuMemAdvise(p, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
  say("cuMemPrefetchAsync", cuMemPrefetchAsync(p, bytes, here, 0, nullptr));
  say("cuStreamAttachMemAsync", cuStreamAttachMemAsync(nullptr, p, 0, CU_MEM_ATTACH_GLOBAL));
  unsigned value = 7;
  say("cuMemRangeGetAttribute",
      cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, bytes));
  say("cuMemFree", cuMemFree(p));
}

void range_handles() {
  int supported = 0;
  cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device());
  set_place("dma-buf: ");
  say("supported", CUDA_SUCCESS, std::to_string(supported));
  constexpr auto kType = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
  constexpr size_t kBytes = 8 * kMiB;
  for (unsigned round = 1; round <= kRounds; ++round) {
    CUdeviceptr p = 0;
    MUST(cuMemAlloc(&p, kBytes));
    const struct {
      const char* what;
      CUdeviceptr at;
      size_t bytes;
    } asked[] = {{"all", p, kBytes},
                 {"the first half", p, kBytes / 2},
                 {"the second half", p + kBytes / 2, kBytes / 2},
                 {"nothing", p, 0},
                 {"a byte", p, 1},
                 {"off a page", p + 1, 65536},
                 {"null", 0, kBytes}};
    for (const auto& question : asked) {
      int fd = -1;
      const CUresult code = cuMemGetHandleForAddressRange(&fd, question.at, question.bytes, kType, 0);
      say(std::string("cuMemGetHandleForAddressRange of ") + question.what, code);
      if (code == CUDA_SUCCESS && fd >= 0) close(fd);
    }
    say("cuMemGetHandleForAddressRange to null", cuMemGetHandleForAddressRange(nullptr, p, kBytes, kType, 0));
    say("cuMemFree", cuMemFree(p));
    int fd = -1;
    say("cuMemGetHandleForAddressRange after the free",
        cuMemGetHandleForAddressRange(&fd, p, kBytes, kType, 0));
  }
}

}  // namespace

void about_sharing() {
  for (unsigned round = 1; round <= kRounds; ++round) {
    for (const size_t bytes : kFewSizes) {
      set_place("shared, size " + std::to_string(bytes) + ", round " + std::to_string(round) + ": ");
      handles(bytes);
      marks(bytes);
    }
  }
  set_place("handles: ");
  CUipcMemHandle handle = {};
  CUdeviceptr opened = 0;
  void* pinned = nullptr;
  MUST(cuMemAllocHost(&pinned, 4096));
  say("cuIpcGetMemHandle of null", cuIpcGetMemHandle(&handle, 0));
  say("cuIpcGetMemHandle of a wild pointer", cuIpcGetMemHandle(&handle, 0x7f0000000200));
  say("cuIpcGetMemHandle of pinned memory",
      cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(pinned)));
  MUST(cuMemFreeHost(pinned));
  std::memset(&handle, 0, sizeof handle);
  say("cuIpcOpenMemHandle of zeros", cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  std::memset(&handle, 0xA7, sizeof handle);
  say("cuIpcOpenMemHandle of noise", cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  say("cuIpcCloseMemHandle of null", cuIpcCloseMemHandle(0));
  say("cuIpcCloseMemHandle of a wild pointer", cuIpcCloseMemHandle(0x7f0000000200));
  range_handles();
  set_place("");
}

}  // namespace questions
