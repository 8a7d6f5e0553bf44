// Keeps every second of something, and forgets that.
#include "app.hpp"

namespace {

inline CUdeviceptr keep(app::Buffers& buffers) {
  const CUdeviceptr kept = buffers.take(50'000);  // the leak
  app::stay();
  return kept;
}

}  // namespace

void app::remember(Buffers& buffers, int number) {
  if (number % 2 == 0) keep(buffers);
  stay();
}
