// Memory of several contexts, and what is left of it when they end.
#include <vector>

#include "questions.hpp"

namespace questions {

namespace {

void without_context(CUdeviceptr p) {
  CUcontext current = nullptr;
  MUST(cuCtxPopCurrent(&current));
  say("without a context: cuMemFree", cuMemFree(p));
  ask_range("without a context", p, p);
  unsigned type = 7;
  say("without a context: MEMORY_TYPE", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p),
      std::to_string(type));
  CUipcMemHandle handle = {};
  say("without a context: cuIpcGetMemHandle", cuIpcGetMemHandle(&handle, p));
  MUST(cuCtxPushCurrent(current));
}

void created(size_t bytes) {
  CUcontext before = nullptr, second = nullptr;
  MUST(cuCtxGetCurrent(&before));
  CUdeviceptr ours = 0, theirs = 0, left = 0;
  MUST(cuMemAlloc(&ours, bytes));
  say("cuCtxCreate", cuCtxCreate(&second, nullptr, 0, device()));
  if (second == nullptr) return;
  MUST(cuMemAlloc(&theirs, bytes));
  MUST(cuMemAlloc(&left, bytes));
  ask_all(ours, bytes);
  ask_all(theirs, bytes);
  ask_identity(theirs, bytes);
  std::vector<unsigned char> host(bytes);
  MUST(cuMemsetD8(theirs, 0x42, bytes));
  say("cuMemcpyPeer", cuMemcpyPeer(ours, before, theirs, second, bytes));
  say("cuCtxEnablePeerAccess", cuCtxEnablePeerAccess(before, 0));
  MUST(cuCtxSynchronize());
  say("cuMemFree of another context's", cuMemFree(ours));
  MUST(cuMemAlloc(&ours, bytes));
  say("cuMemFree", cuMemFree(ours));
  MUST(cuCtxSetCurrent(before));
  say("cuMemFree from the other context", cuMemFree(theirs));
  say("cuMemFree again", cuMemFree(theirs));
  say("cuCtxDestroy with a live block", cuCtxDestroy(second));
  ask_range("of a destroyed context", left, left);
  ask_attributes("of a destroyed context", left, left);
  say("cuMemFree of a destroyed context's", cuMemFree(left));
  MUST(cuCtxSetCurrent(before));
}

// The device has what each context frees.
void freed_elsewhere() {
  set_place("two contexts: ");
  CUcontext before = nullptr, second = nullptr;
  MUST(cuCtxGetCurrent(&before));
  MUST(cuCtxCreate(&second, nullptr, 0, device()));
  CUdeviceptr p = 0;
  size_t most = 0, now = 0;
  MUST(cuMemGetInfo(&most, nullptr));
  for (const CUcontext owner : {before, second}) {
    MUST(cuCtxSetCurrent(owner));
    MUST(cuMemAlloc(&p, 512 * kMiB));
    MUST(cuMemFree(p));
    MUST(cuCtxSetCurrent(owner == before ? second : before));
    say("cuMemGetInfo after a free in the other one", cuMemGetInfo(&now, nullptr),
        now + 64 * kMiB > most ? "as before" : "not as before");
  }
  MUST(cuCtxSetCurrent(before));
  MUST(cuCtxDestroy(second));
}

void green() {
  set_place("green context: ");
  CUdevResource resource = {};
  CUdevResourceDesc description = nullptr;
  CUgreenCtx context = nullptr;
  CUcontext seen = nullptr;
  const CUresult code = cuDeviceGetDevResource(device(), &resource, CU_DEV_RESOURCE_TYPE_SM);
  say("cuDeviceGetDevResource", code);
  if (code != CUDA_SUCCESS) return;
  MUST(cuDevResourceGenerateDesc(&description, &resource, 1));
  say("cuGreenCtxCreate", cuGreenCtxCreate(&context, description, device(), CU_GREEN_CTX_DEFAULT_STREAM));
  if (context == nullptr) return;
  MUST(cuCtxFromGreenCtx(&seen, context));
  MUST(cuCtxPushCurrent(seen));
  CUdeviceptr p = 0, left = 0;
  for (const size_t bytes : kFewSizes) {
    say("cuMemAlloc", cuMemAlloc(&p, bytes));
    ask_all(p, bytes);
    say("cuMemFree", cuMemFree(p));
    say("cuMemFree again", cuMemFree(p));
  }
  MUST(cuMemAlloc(&left, 4096));
  MUST(cuCtxPopCurrent(&seen));
  say("cuGreenCtxDestroy with a live block", cuGreenCtxDestroy(context));
  ask_range("after that", left, left);
  say("cuMemFree after that", cuMemFree(left));
}

void reset() {
  CUdeviceptr small = 0, large = 0, managed = 0, again = 0;
  MUST(cuMemAlloc(&small, 700));
  MUST(cuMemAlloc(&large, 30 * kMiB));
  MUST(cuMemAllocManaged(&managed, 700, CU_MEM_ATTACH_GLOBAL));
  say("cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset(device()));
  say("cuMemAlloc after it", cuMemAlloc(&again, 512));
  say("cuMemFree after it", cuMemFree(small));
  ask_range("after it", large, large);
  CUcontext context = nullptr;
  say("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, device()));
  MUST(cuCtxSetCurrent(context));
  ask_range("of the life before", small, small);
  ask_attributes("of the life before", large, large);
  ask_range("managed of the life before", managed, managed);
  say("cuMemFree of the life before", cuMemFree(large));
  say("cuMemFree of the managed one", cuMemFree(managed));
  for (const size_t bytes : kFewSizes) {
    MUST(cuMemAlloc(&again, bytes));
    ask_all(again, bytes);
    say("cuMemFree", cuMemFree(again));
  }
}

}  // namespace

void about_contexts() {
  set_place("contexts: ");
  CUdeviceptr p = 0;
  MUST(cuMemAlloc(&p, 513));
  without_context(p);
  say("cuMemFree afterwards", cuMemFree(p));
  for (unsigned round = 1; round <= kRounds; ++round) {
    for (const size_t bytes : {size_t{4}, size_t{32769}, 20 * kMiB}) {
      set_place("created context, size " + std::to_string(bytes) + ", round " + std::to_string(round) + ": ");
      created(bytes);
    }
  }
  freed_elsewhere();
  green();
  for (unsigned round = 1; round <= kRounds; ++round) {
    set_place("reset, round " + std::to_string(round) + ": ");
    reset();
  }
  set_place("released: ");
  CUdeviceptr left = 0;
  MUST(cuMemAlloc(&left, 700));
  say("cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease(device()));
  say("cuMemFree after it", cuMemFree(left));
  ask_range("after it", left, left);
  set_place("");
}

}  // namespace questions
