// Its second half.
#include "app.hpp"

void app::backward(Buffers& buffers, CUdeviceptr activations) {
  const CUdeviceptr gradients = buffers.take(300'000);
  buffers.give(gradients);
  buffers.give(activations);
  stay();
}
