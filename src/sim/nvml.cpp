// The NVML beside the simulated driver: how much of a device is in use, and by which processes, which is this
// one alone. Environment: CUPOOL_SIM_NVML (options.hpp). Asks the driver in this process; holds nothing.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

enum Answer { kDone = 0, kInvalid = 2, kNotFound = 6, kTooSmall = 7, kNoDriver = 9 };

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

bool is_set_to(const char* value) {
  const char* const text = std::getenv("CUPOOL_SIM_NVML");  // NOLINT(concurrency-mt-unsafe): a test sets it
  return text != nullptr && std::strcmp(text, value) == 0;
}

bool read_memory(const void* device, unsigned long long* total, unsigned long long* used) {
  using Read = bool (*)(int, unsigned long long*, unsigned long long*);
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  const auto read = driver == nullptr ? nullptr : reinterpret_cast<Read>(dlsym(driver, "cupool_sim_memory"));
  const int number = static_cast<int>(reinterpret_cast<std::uintptr_t>(device)) - 1;
  return read != nullptr && read(number, total, used);
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return is_set_to("off") ? kNoDriver : kDone; }
int nvmlShutdown() { return kDone; }

// The last byte of a simulated device's identity is its number.
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  const std::size_t size = uuid == nullptr ? 0 : std::strlen(uuid);
  if (size != 40 || std::strncmp(uuid, "GPU-5c5c5c5c-", 13) != 0) return kNotFound;
  *device = reinterpret_cast<void*>(std::strtoul(uuid + size - 2, nullptr, 16) + 1);
  return kDone;
}

int nvmlDeviceGetMemoryInfo(const void* device, Memory* out) {
  unsigned long long total = 0;
  unsigned long long used = 0;
  if (out == nullptr || !read_memory(device, &total, &used)) return kInvalid;
  *out = {total, total - used, used};
  return kDone;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const void* device, unsigned* count, Process* out) {
  unsigned long long total = 0;
  unsigned long long used = 0;
  if (count == nullptr || !read_memory(device, &total, &used)) return kInvalid;
  const unsigned room = *count;
  *count = 1;
  if (room == 0) return kTooSmall;
  *out = {is_set_to("hidden") ? 1u : static_cast<unsigned>(getpid()), used, 0, 0};
  return kDone;
}

}  // extern "C"
