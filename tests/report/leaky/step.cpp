// What is done again and again.
#include "app.hpp"

void app::step(Buffers& buffers, int number) {
  const CUdeviceptr activations = forward(buffers, number);
  backward(buffers, activations);
  report_loss();
  stay();
}
