// Asks a driver several hundred questions about memory and prints the answers, without addresses.
#include "questions.hpp"

#include <cstdio>
#include <cstdlib>

namespace questions {

namespace {
std::string place;
CUdevice the_device = 0;
}  // namespace

void set_place(const std::string& text) { place = text; }
CUdevice device() { return the_device; }

void say(const std::string& question, CUresult code, const std::string& answer) {
  const char* name = nullptr;
  if (cuGetErrorName(code, &name) != CUDA_SUCCESS || name == nullptr) name = "?";
  std::printf("%s%s: %d %s%s%s\n", place.c_str(), question.c_str(), static_cast<int>(code), name,
              answer.empty() ? "" : " | ", answer.c_str());
}

void must(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  std::printf("cannot go on: %s gave %d\n", what, static_cast<int>(code));
  std::exit(2);
}

// The driver's word before it is initialised and before there is a context.
void about_the_time_before() {
  for (const char* when : {"before init: ", "no context: "}) {
    set_place(when);
    CUdeviceptr p = 0x1234;
    size_t a = 7, b = 7;
    say("cuMemAlloc", cuMemAlloc(&p, 512), p == 0x1234 ? "untouched" : "written");
    p = 0x1234;
    say("cuMemAlloc of nothing", cuMemAlloc(&p, 0), p == 0x1234 ? "untouched" : "written");
    say("cuMemAlloc to null", cuMemAlloc(nullptr, 512));
    say("cuMemFree of null", cuMemFree(0));
    say("cuMemFree of a wild pointer", cuMemFree(0x7f0000000200));
    say("cuMemAllocPitch", cuMemAllocPitch(&p, &a, 100, 10, 4));
    say("cuMemAllocManaged", cuMemAllocManaged(&p, 512, CU_MEM_ATTACH_GLOBAL));
    say("cuMemGetInfo", cuMemGetInfo(&a, &b));
    say("cuMemGetAddressRange of a wild pointer", cuMemGetAddressRange(&p, &a, 0x7f0000000200));
    unsigned value = 7;
    say("cuPointerGetAttribute of a wild pointer",
        cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x7f0000000200));
    CUipcMemHandle handle = {};
    say("cuIpcGetMemHandle of a wild pointer", cuIpcGetMemHandle(&handle, 0x7f0000000200));
    say("cuIpcOpenMemHandle of zeros", cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    say("cuIpcCloseMemHandle of a wild pointer", cuIpcCloseMemHandle(0x7f0000000200));
    if (when[0] == 'b') MUST(cuInit(0));
  }
  set_place("");
}

}  // namespace questions

int main() {
  using namespace questions;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // an answer that never came is seen to be missing
  about_the_time_before();
  MUST(cuDeviceGet(&the_device, 0));
  CUcontext context = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&context, the_device));
  MUST(cuCtxSetCurrent(context));
  about_pointers();
  about_calls();
  about_sharing();
  about_managed();
  about_contexts();
  about_work();
  std::printf("that is all\n");
  return 0;
}
