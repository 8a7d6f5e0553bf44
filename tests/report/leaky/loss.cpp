// Waits for the device once in each step.
#include "app.hpp"

void app::report_loss() {
  cuCtxSynchronize();  // the stall
  stay();
}
