// Victim's library: makes green contexts when it is used, and ends them when it is unloaded at exit, which is
// after everything that was preloaded.
#include <cuda.h>

#include <cstdio>

namespace {

CUgreenCtx greens[8];

void say(const char* call, CUresult result) { std::printf("%s: %d\n", call, static_cast<int>(result)); }

[[gnu::destructor]] void end() {
  for (CUgreenCtx green : greens) say("destroy", cuGreenCtxDestroy(green));
  say("reset", cuDevicePrimaryCtxReset(0));
  std::fflush(stdout);
}

}  // namespace

extern "C" [[gnu::visibility("default")]] void use_greens() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUdevResource resource;
  CUdevResourceDesc description = nullptr;
  say("init", cuInit(0));
  say("get", cuDeviceGet(&device, 0));
  say("retain", cuDevicePrimaryCtxRetain(&context, device));
  say("set", cuCtxSetCurrent(context));
  say("resource", cuDeviceGetDevResource(device, &resource, CU_DEV_RESOURCE_TYPE_SM));
  say("describe", cuDevResourceGenerateDesc(&description, &resource, 1));
  for (CUgreenCtx& green : greens) {
    say("create", cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
    say("name", cuCtxFromGreenCtx(&context, green));
  }
  CUdeviceptr p = 0;
  say("allocate", cuMemAlloc(&p, 1000));
}
