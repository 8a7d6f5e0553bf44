// Victim: gets at a function or table of the driver that cupool does not know, in the way that it is told:
// dlsym, next, getproc, table, or not at all. The rest is an ordinary program.
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

}  // namespace

int main(int, char** arguments) {
  victim::Device device(victim::linked_api());
  std::printf("reached %d\n", reach(arguments[1]));
  victim::exercise(device);
  return device.finish("tomorrow");
}
