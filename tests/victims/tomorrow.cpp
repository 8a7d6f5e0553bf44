// Victim: gets at a function or table of the driver that cupool does not know, in the way that it is told:
// dlsym, next, getproc, table, or not at all. The rest is an ordinary program. capture: the function begins a
// capture, and frees go on meanwhile, with work under way.
#include <dlfcn.h>

#include <cstring>

#include "linked_api.hpp"
#include "victim.hpp"

namespace {

bool reach(const char* way) {
  void* pointer = nullptr;
  if (std::strcmp(way, "dlsym") == 0) pointer = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuTomorrow");
  if (std::strcmp(way, "next") == 0) pointer = dlsym(RTLD_NEXT, "cuTomorrow");
  if (std::strcmp(way, "getproc") == 0)
    VICTIM_CHECK(cuGetProcAddress("cuTomorrow", &pointer, 13000, CU_GET_PROC_ADDRESS_DEFAULT, nullptr));
  if (std::strcmp(way, "table") == 0) {
    CUuuid id;
    const void* table = nullptr;
    std::memcpy(id.bytes, "nobody knows it", sizeof id.bytes);
    VICTIM_CHECK(cuGetExportTable(&table, &id));
    return table != nullptr;
  }
  return pointer != nullptr;
}

void* function() {
  void* pointer = nullptr;
  VICTIM_CHECK(cuGetProcAddress("cuTomorrow", &pointer, 13000, CU_GET_PROC_ADDRESS_DEFAULT, nullptr));
  return pointer;
}

void free_during_a_capture(victim::Device& device) {
  const auto begin_capture = reinterpret_cast<CUresult (*)(CUstream)>(function());
  constexpr size_t kBytes = size_t{20} << 20;
  CUstream captures = nullptr, works = nullptr;
  VICTIM_CHECK(cuStreamCreate(&captures, CU_STREAM_NON_BLOCKING));
  VICTIM_CHECK(cuStreamCreate(&works, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr kept = device.alloc(kBytes);
  VICTIM_CHECK(begin_capture(captures));
  device.fill(kept, kBytes, 7, captures);
  for (unsigned value = 1; value < 5; ++value) {
    const CUdeviceptr p = device.alloc(kBytes);
    device.fill(p, kBytes, value, works);
    device.check(p, kBytes, value, works);
    device.free(p);
  }
  CUgraph graph = nullptr;
  const CUresult ended = cuStreamEndCapture(captures, &graph);
  std::printf("capture %d, %s\n", ended, graph == nullptr ? "no graph" : "graph");
  if (graph != nullptr) VICTIM_CHECK(cuGraphDestroy(graph));
  device.free(kept);
}

}  // namespace

int main(int, char** arguments) {
  victim::Device device(victim::linked_api());
  if (std::strcmp(arguments[1], "capture") == 0) {
    free_during_a_capture(device);
    return device.finish("tomorrow");
  }
  std::printf("reached %d\n", reach(arguments[1]));
  victim::exercise(device);
  return device.finish("tomorrow");
}
