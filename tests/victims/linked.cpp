// Victim: links libcuda, the plain door. Also takes the allocation calls that are not cuMemAlloc, once each.
#include "linked_api.hpp"
#include "victim.hpp"

int main() {
  victim::Device device(victim::linked_api());
  victim::exercise(device);

  const victim::Api& api = device.api();
  CUdeviceptr pitched = 0;
  size_t pitch = 0;
  VICTIM_CHECK(api.cuMemAllocPitch_v2(&pitched, &pitch, 1000, 8, 4));
  device.fill(pitched, pitch * 8, 5);
  device.check(pitched, pitch * 8, 5);

  CUdeviceptr managed = 0;
  VICTIM_CHECK(api.cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  device.fill(managed, 4096, 6);
  device.check(managed, 4096, 6);
  device.free(pitched);
  device.free(managed);

  CUdeviceptr by_stream = device.alloc(4096);
  device.fill(by_stream, 4096, 7);
  VICTIM_CHECK(api.cuMemFreeAsync(by_stream, nullptr));

  size_t free_bytes = 0, total_bytes = 0;
  VICTIM_CHECK(api.cuMemGetInfo_v2(&free_bytes, &total_bytes));
  std::printf("pitch=%zu free_within_total=%d\n", pitch, free_bytes != 0 && free_bytes <= total_bytes);
  return device.finish("linked");
}
