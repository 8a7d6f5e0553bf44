// Managed memory: its flags, what its pages are told, and that none of it is left in the next life.
#include <cstring>

#include "questions.hpp"

namespace questions {

namespace {

struct RangeAttribute {
  CUmem_range_attribute which;
  const char* name;
};

const RangeAttribute kAttributes[] = {
    {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, "READ_MOSTLY"},
    {CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, "PREFERRED_LOCATION"},
    {CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, "LAST_PREFETCH_LOCATION"},
    {CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, "PREFERRED_LOCATION_TYPE"},
    {CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, "PREFERRED_LOCATION_ID"},
    {CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, "LAST_PREFETCH_LOCATION_TYPE"},
    {CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID, "LAST_PREFETCH_LOCATION_ID"},
};

void ask_pages(const char* when, CUdeviceptr p, size_t bytes) {
  for (const RangeAttribute& attribute : kAttributes) {
    int value = 77;
    const CUresult code = cuMemRangeGetAttribute(&value, sizeof value, attribute.which, p, bytes);
    say(std::string(attribute.name) + " " + when, code, std::to_string(value));
  }
  int accessed[2] = {77, 77};
  const CUresult code =
      cuMemRangeGetAttribute(accessed, sizeof accessed, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, bytes);
  say(std::string("ACCESSED_BY ") + when, code,
      std::to_string(accessed[0]) + ", " + std::to_string(accessed[1]));
}

void ask_host(const char* which, CUdeviceptr p) {
  unsigned flags = 77;
  const CUresult code = cuMemHostGetFlags(&flags, reinterpret_cast<void*>(p));
  say(std::string("cuMemHostGetFlags of memory ") + which, code, std::to_string(flags));
}

void life(size_t bytes, unsigned flags) {
  CUdeviceptr p = 0;
  say("cuMemAllocManaged", cuMemAllocManaged(&p, bytes, flags));
  if (p == 0) return;
  ask_all(p, bytes);
  ask_identity(p, bytes);
  ask_pages("of a new life", p, bytes);
  CUmemLocation here = {}, host = {};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  here.id = device();
  host.type = CU_MEM_LOCATION_TYPE_HOST;
  MUST(cuCtxSynchronize());
  say("the host writes", CUDA_SUCCESS);
  std::memset(reinterpret_cast<void*>(p), 0x5C, bytes);
  unsigned char last = 0;
  MUST(cuMemcpyDtoH(&last, p + bytes - 1, 1));
  say("the device sees what the host wrote", CUDA_SUCCESS, std::to_string(last));
  MUST(cuMemsetD8(p, 0x31, bytes));
  MUST(cuCtxSynchronize());
  say("the host sees what the device wrote", CUDA_SUCCESS,
      std::to_string(*reinterpret_cast<unsigned char*>(p + bytes - 1)));
  say("cuMemAdvise read mostly", cuMemAdvise(p, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
  say("cuMemAdvise prefer the host", cuMemAdvise(p, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
  say("cuMemAdvise accessed by", cuMemAdvise(p, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, here));
  say("cuMemPrefetchAsync to the device", cuMemPrefetchAsync(p, bytes, here, 0, nullptr));
  say("cuMemPrefetchAsync to the host", cuMemPrefetchAsync(p, bytes, host, 0, nullptr));
  MUST(cuCtxSynchronize());
  ask_pages("after advice", p, bytes);
  CUipcMemHandle handle = {};
  say("cuIpcGetMemHandle", cuIpcGetMemHandle(&handle, p));
  say("cuMemFree inside", bytes > 1 ? cuMemFree(p + bytes / 2) : CUDA_ERROR_INVALID_VALUE);
  say("cuMemFree", cuMemFree(p));
  ask_range("after the free", p, p);
  say("cuMemFree again", cuMemFree(p));
  // The next one: it is freed as it came, so that the pool keeps it.
  MUST(cuMemAllocManaged(&p, bytes, flags));
  ask_host("that is new", p);
  MUST(cuMemFree(p));
  ask_pages("of freed memory", p, bytes);
  ask_host("that was freed", p);
  say("cuMemAdvise of freed memory", cuMemAdvise(p, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
  say("cuMemPrefetchAsync of freed memory", cuMemPrefetchAsync(p, bytes, here, 0, nullptr));
  say("cuStreamAttachMemAsync of freed memory", cuStreamAttachMemAsync(nullptr, p, 0, CU_MEM_ATTACH_GLOBAL));
  // The next one of the same kind must know nothing of all this.
  MUST(cuMemAllocManaged(&p, bytes, flags));
  ask_pages("of the next life", p, bytes);
  say("cuStreamAttachMemAsync", cuStreamAttachMemAsync(nullptr, p, 0, CU_MEM_ATTACH_GLOBAL));
  MUST(cuCtxSynchronize());
  say("cuMemFree of the next life", cuMemFree(p));
}

}  // namespace

void about_managed() {
  for (unsigned round = 1; round <= kRounds; ++round) {
    for (const size_t bytes : kFewSizes) {
      for (const unsigned flags : {CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST}) {
        set_place("managed, size " + std::to_string(bytes) + ", flags " + std::to_string(flags) + ", round " +
                  std::to_string(round) + ": ");
        life(bytes, flags);
      }
    }
  }
  set_place("managed: ");
  CUdeviceptr p = 0x1234;
  for (const unsigned flags : {0u, 3u, 4u, 8u}) {
    say("cuMemAllocManaged with flags " + std::to_string(flags), cuMemAllocManaged(&p, 512, flags),
        p == 0x1234 ? "untouched" : "written");
  }
  say("cuMemAllocManaged of nothing", cuMemAllocManaged(&p, 0, CU_MEM_ATTACH_GLOBAL));
  say("cuMemAllocManaged to null", cuMemAllocManaged(nullptr, 512, CU_MEM_ATTACH_GLOBAL));
  say("cuMemAllocManaged of 2^50", cuMemAllocManaged(&p, size_t{1} << 50, CU_MEM_ATTACH_GLOBAL));
  set_place("");
}

}  // namespace questions
