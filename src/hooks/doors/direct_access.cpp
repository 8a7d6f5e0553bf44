// See direct_access.hpp.
#include "hooks/doors/direct_access.hpp"

#include <link.h>
#include <unistd.h>

#include <cstring>

#include "base/format.hpp"
#include "base/log.hpp"
#include "config/options.hpp"
#include "hooks/state/serving.hpp"

namespace cupool::hooks {

namespace {

// A library alone proves nothing (PyTorch ships libcufile): without its device it falls back to CUDA's own
// copies. Packages may append a suffix to a library's name. A device name that ends in a number stands for
// any device of its kind.
struct Way {
  const char* library;
  const char* device;
  bool is_numbered;
  const char* reason;
};
constexpr Way kWays[] = {
    {"/libibverbs", "/dev/infiniband", false, "libibverbs is loaded"},
    {"/libfabric", "/dev/infiniband", false, "libfabric is loaded"},
    {"/libfabric", "/dev/cxi", true, "libfabric is loaded"},
    {"/libfabric", "/dev/hfi1_", true, "libfabric is loaded"},
    {"/libcxi", "/dev/cxi", true, "libcxi is loaded"},
    {"/libpsm2", "/dev/hfi1_", true, "libpsm2 is loaded"},
    {"/libgdrapi", "/dev/gdrdrv", false, "libgdrapi is loaded"},
    {"/libcufile", "/dev/nvidia-fs", true, "libcufile is loaded"},
};

bool has_device(const Way& way) {
  if (!way.is_numbered) return access(way.device, F_OK) == 0;
  constexpr int kMostDevices = 16;
  for (int i = 0; i < kMostDevices; ++i) {
    char path[32];
    format_into(path, "{}{}", way.device, i);
    if (access(path, F_OK) == 0) return true;
  }
  return false;
}

int look_at(dl_phdr_info* info, size_t, void* found) {
  for (const Way& way : kWays) {
    if (info->dlpi_name == nullptr || strstr(info->dlpi_name, way.library) == nullptr) continue;
    if (!has_device(way)) continue;
    *static_cast<const Way**>(found) = &way;
    return 1;
  }
  return 0;
}

void use_completed_only(const char* reason) {
  static constinit std::atomic<bool> done{false};
  if (done.exchange(true, std::memory_order_relaxed)) return;
  memory.order().expect_direct_access(reason);
}

}  // namespace

void look_for_direct_access() {
  const Way* found = nullptr;
  dl_iterate_phdr(look_at, &found);
  if (found == nullptr) return;
  use_completed_only(found->reason);
  // Network libraries may register memory in ways that know only the driver's own allocations.
  memory.pools().stop_mapping();
  if (config::options().segments == config::Segments::kMapped)
    log::detail("segments are the driver's own allocations, for {}", found->reason);
}

void note_direct_access() { use_completed_only("memory was made ready for direct access by another device"); }

}  // namespace cupool::hooks
