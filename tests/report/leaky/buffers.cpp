// Memory for everybody: the innermost function of every stack.
#include "app.hpp"

CUdeviceptr app::Buffers::take(std::size_t bytes) {
  CUdeviceptr block = 0;
  cuMemAlloc(&block, bytes);
  stay();
  return block;
}
