// Victim: names what it does by NVTX, in the default domain and in one of its own, and allocates meanwhile.
#include <cuda.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <thread>

namespace {

void pair(size_t bytes) {
  CUdeviceptr p = 0;
  if (cuMemAlloc(&p, bytes) != CUDA_SUCCESS || cuMemFree(p) != CUDA_SUCCESS) std::puts("failed");
}

}  // namespace

int main() {
  CUcontext context = nullptr;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  const int outer = nvtxRangePushA("forward");
  nvtxDomainHandle_t domain = nvtxDomainCreateA("layers");
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = nvtxDomainRegisterStringA(domain, "attention");
  nvtxDomainRangePushEx(domain, &attributes);
  pair(1000);
  nvtxDomainRangePop(domain);
  attributes.messageType = NVTX_MESSAGE_TYPE_UNICODE;
  attributes.message.unicode = L"loss";
  nvtxRangePushEx(&attributes);
  nvtxRangePop();
  // Ranges that lie across each other, and end on another thread than they began.
  const nvtxRangeId_t first = nvtxRangeStartA("loading");
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = "copying";
  const nvtxRangeId_t second = nvtxDomainRangeStartEx(domain, &attributes);
  std::thread([&] {
    nvtxRangeEnd(first);
    nvtxDomainRangeEnd(domain, second);
  }).join();
  const int level = nvtxRangePop();
  std::printf("levels %d %d\n", outer, level);
  return 0;
}
