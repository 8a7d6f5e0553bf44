// Forty steps.
#include "app.hpp"

int main() {
  CUcontext context = nullptr;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  app::Buffers buffers;
  app::load_weights(buffers);
  for (int number = 0; number < 40; ++number) app::step(buffers, number);
  return 0;
}
