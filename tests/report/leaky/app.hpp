// A program of ten files with a leak, a double hold and a stall, each on the line that says so: what the
// commands that read traces must name. tests/report/names_test.py builds it.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace app {

struct Buffers {
  CUdeviceptr take(std::size_t bytes);
  void give(CUdeviceptr block);
};

void load_weights(Buffers& buffers);
void step(Buffers& buffers, int number);
CUdeviceptr forward(Buffers& buffers, int number);
void backward(Buffers& buffers, CUdeviceptr activations);
void remember(Buffers& buffers, int number);
void report_loss();

// So that a compiler makes no call of this the end of its caller.
inline void stay() { asm volatile("" ::: "memory"); }

}  // namespace app
