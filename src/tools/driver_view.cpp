// See driver_view.hpp. The numbers of attributes and errors are the driver's own and never change.
#include "tools/driver_view.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>

namespace cupool::tools {
namespace {

constexpr int kMemoryPoolsSupported = 115;
constexpr int kContextEventsSince = 12050;

template <typename Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

std::string path_of(void* library) {
  link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_name : "";
}

void look_at_devices(void* library, DriverView* view) {
  const auto count_devices = find<int(int*)>(library, "cuDeviceGetCount");
  const auto get_device = find<int(int*, int)>(library, "cuDeviceGet");
  const auto get_name = find<int(char*, int, int)>(library, "cuDeviceGetName");
  const auto get_bytes = find<int(size_t*, int)>(library, "cuDeviceTotalMem_v2");
  const auto get_attribute = find<int(int*, int, int)>(library, "cuDeviceGetAttribute");
  int count = 0;
  if (count_devices == nullptr || get_device == nullptr || count_devices(&count) != 0) return;
  for (int i = 0; i < count; ++i) {
    DriverView::Device device;
    int handle = 0;
    if (get_device(&handle, i) != 0) continue;
    char name[128] = "";
    if (get_name != nullptr && get_name(name, sizeof name, handle) == 0) device.name = name;
    size_t bytes = 0;
    if (get_bytes != nullptr && get_bytes(&bytes, handle) == 0) device.bytes = bytes;
    int pools = 0;
    if (get_attribute != nullptr && get_attribute(&pools, kMemoryPoolsSupported, handle) == 0) {
      device.memory_pools = pools != 0;
    }
    view->devices.push_back(device);
  }
}

}  // namespace

DriverView view_driver() {
  DriverView view;
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY);
  if (library == nullptr) {
    view.error = dlerror();
    return view;
  }
  view.library = path_of(library);
  const auto get_version = find<int(int*)>(library, "cuDriverGetVersion");
  if (get_version != nullptr) get_version(&view.version);
  view.context_events = view.version >= kContextEventsSince;
  const auto initialize = find<int(unsigned)>(library, "cuInit");
  const int result = initialize == nullptr ? -1 : initialize(0);
  if (result != 0) {
    view.error = "cuInit answers with error " + std::to_string(result);
    return view;
  }
  look_at_devices(library, &view);
  return view;
}

}  // namespace cupool::tools
