// Victim: is linked to a function of the driver that cupool does not know.
#include "linked_api.hpp"
#include "victim.hpp"

extern "C" CUresult cuTomorrow(CUstream stream);

int main() {
  victim::Device device(victim::linked_api());
  std::printf("linked %d\n", cuTomorrow(CU_STREAM_LEGACY) != CUDA_SUCCESS);
  victim::exercise(device);
  return device.finish("tomorrow");
}
