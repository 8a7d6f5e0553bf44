// Memory back.
#include "app.hpp"

void app::Buffers::give(CUdeviceptr block) {
  cuMemFree(block);
  stay();
}
