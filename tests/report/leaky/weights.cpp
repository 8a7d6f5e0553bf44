// Memory for as long as the program runs.
#include "app.hpp"

void app::load_weights(Buffers& buffers) {
  buffers.take(30'000'000);
  stay();
  buffers.take(30'000'000);  // the double hold
  stay();
}
