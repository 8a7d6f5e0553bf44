// See nvml.hpp. The few declarations that are needed are written here: NVML's header is not one that a build
// has to have.
#include "cuda/nvml.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/format.hpp"
#include "base/system_library.hpp"
#include "cuda/real.hpp"

namespace cupool::cuda {
namespace {

using Handle = void*;
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};
constexpr int kDone = 0;

struct Functions {
  int (*start)();
  int (*stop)();
  int (*find)(const char* uuid, Handle* device);
  int (*memory)(Handle device, Memory* out);
  // Programs that compute directly, and those that do so through an MPS server.
  int (*processes)(Handle device, unsigned* count, Process* out);
  int (*mps_processes)(Handle device, unsigned* count, Process* out);
};

constexpr char kName[] = "libnvidia-ml.so.1";

// Beside the driver's own library: of the same version, and by an absolute path.
void* open_beside_the_driver() {
  Dl_info driver;
  if (dladdr(real.cuDeviceGet.address(), &driver) == 0 || driver.dli_fname == nullptr) return nullptr;
  const char* const end = strrchr(driver.dli_fname, '/');
  if (driver.dli_fname[0] != '/' || end == nullptr) return nullptr;
  char path[512];
  const std::string_view folder(driver.dli_fname, static_cast<size_t>(end - driver.dli_fname));
  if (folder.size() + sizeof kName + 1 > sizeof path) return nullptr;
  format_into(path, "{}/{}", folder, kName);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

// Opened once; threads that race open the same library.
const Functions* functions() {
  static constinit Functions all{};
  static constinit std::atomic<const Functions*> found{nullptr};
  static constinit std::atomic<bool> is_missing{false};
  if (const Functions* const known = found.load(std::memory_order_acquire)) return known;
  if (is_missing.load(std::memory_order_relaxed)) return nullptr;
  void* library = open_beside_the_driver();
  if (library == nullptr) library = open_system_library(kName);
  Functions now{};
  const auto look_up = [&](auto* function, const char* name) {
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(real_dlsym()(library, name));
    return *function != nullptr;
  };
  if (library == nullptr || !look_up(&now.start, "nvmlInit_v2") || !look_up(&now.stop, "nvmlShutdown") ||
      !look_up(&now.find, "nvmlDeviceGetHandleByUUID") || !look_up(&now.memory, "nvmlDeviceGetMemoryInfo")) {
    is_missing.store(true, std::memory_order_relaxed);
    return nullptr;
  }
  // Both versions fill in the same struct.
  if (!look_up(&now.processes, "nvmlDeviceGetComputeRunningProcesses_v3"))
    look_up(&now.processes, "nvmlDeviceGetComputeRunningProcesses_v2");
  if (!look_up(&now.mps_processes, "nvmlDeviceGetMPSComputeRunningProcesses_v3"))
    look_up(&now.mps_processes, "nvmlDeviceGetMPSComputeRunningProcesses_v2");
  all = now;
  found.store(&all, std::memory_order_release);
  return &all;
}

Handle handle_of(const Functions& nvml, CUdevice device) {
  CUuuid id = {};
  if (real.cuDeviceGetUuid_v2(&id, device) != CUDA_SUCCESS) return nullptr;
  // A slice of a device (MIG) has a name of its own kind.
  for (const char* const kind : {"GPU", "MIG"}) {
    char text[48];
    size_t at = format_into(text, "{}", kind);
    for (size_t i = 0; i < sizeof id.bytes; ++i) {
      const bool has_dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
      at += format_into(std::span(text).subspan(at), "{}{:02x}", has_dash ? "-" : "",
                        static_cast<unsigned>(static_cast<unsigned char>(id.bytes[i])));
    }
    Handle found = nullptr;
    if (nvml.find(text, &found) == kDone) return found;
  }
  return nullptr;
}

bool find_process(int (*list)(Handle, unsigned*, Process*), Handle device, uint64_t* bytes) {
  constexpr unsigned kMost = 128;
  constexpr unsigned long long kUnknown = ~0ull;
  Process all[kMost] = {};
  unsigned count = kMost;
  if (list == nullptr || list(device, &count, all) != kDone) return false;
  for (unsigned i = 0; i < count && i < kMost; ++i) {
    if (all[i].pid != static_cast<unsigned>(getpid()) || all[i].bytes == kUnknown) continue;
    *bytes = all[i].bytes;
    return true;
  }
  return false;
}

}  // namespace

Nvml::Nvml() {
  const Functions* const nvml = functions();
  is_there_ = nvml != nullptr && nvml->start() == kDone;
}

Nvml::~Nvml() {
  if (is_there_) functions()->stop();
}

bool Nvml::in_use(CUdevice device, uint64_t* bytes) const {
  if (!is_there_) return false;
  Memory memory = {};
  const Handle handle = handle_of(*functions(), device);
  if (handle == nullptr || functions()->memory(handle, &memory) != kDone) return false;
  *bytes = memory.total - memory.free;
  return true;
}

bool Nvml::charged(CUdevice device, uint64_t* bytes) const {
  if (!is_there_) return false;
  const Handle handle = handle_of(*functions(), device);
  return handle != nullptr && (find_process(functions()->processes, handle, bytes) ||
                               find_process(functions()->mps_processes, handle, bytes));
}

}  // namespace cupool::cuda
