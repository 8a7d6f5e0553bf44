// Victim: what scripts/demo shows: allocate, fill, check, free, over and over, with the time an iteration
// takes. Usage: churn [rounds] [bytes]
#include <chrono>

#include "linked_api.hpp"
#include "victim.hpp"

int main(int argc, char** argv) {
  const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 2000;
  const size_t bytes = argc > 2 ? static_cast<size_t>(std::atoll(argv[2])) : 1 << 20;
  victim::Device device(victim::linked_api());

  const auto begin = std::chrono::steady_clock::now();
  for (unsigned round = 0; round < rounds; ++round) {
    const CUdeviceptr p = device.alloc(bytes);
    device.fill(p, bytes, round);
    device.check(p, bytes, round);
    device.free(p);
  }
  VICTIM_CHECK(device.api().cuCtxSynchronize());
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
  std::printf("%u times cuMemAlloc, two kernels, cuMemFree of %zu bytes: %.1f us each\n", rounds, bytes,
              taken.count() / rounds);
  return device.finish("churn");
}
