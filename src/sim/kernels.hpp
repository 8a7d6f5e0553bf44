// The kernels that the simulated device knows, whatever image is loaded:
//   fill(CUdeviceptr p, size_t bytes, unsigned value)    every byte becomes the low byte of value
//   check(CUdeviceptr p, size_t bytes, unsigned value, CUdeviceptr verdict)
//                                                        adds the number of wrong bytes to the first of four
//                                                        64-bit words there; see kernels.cpp
//   spin(unsigned long long ns)                          takes scheduler steps, touches nothing
//   await(CUdeviceptr word, unsigned value)              is over when the word there has that value
//   deep(CUdeviceptr p, unsigned value), heap(the same)  write 1 to the byte there; the first needs memory
//   for
//                                                        large stacks, the second the device heap
// Arguments come through kernelParams. Under the state mutex when they run.
#pragma once

#include <cuda.h>

#include <memory>

#include "sim/allocations.hpp"
#include "sim/model.hpp"

namespace cupool::sim {

bool kernel_by_name(const char* name, KernelKind& kind);
const char* kernel_name(KernelKind kind);
// Null when parameters are missing.
std::shared_ptr<Work> kernel_work(KernelKind kind, void** parameters, const Context& context);

// Takes the memory that the driver itself needs for the kernel, or tells why there is none.
CUresult prepare_launch(KernelKind kind, Context& context);

// Device memory that work of this context may touch, or null: then the access is illegal.
std::uint8_t* device_bytes(CUdeviceptr p, std::uint64_t bytes, std::uint64_t context_id, Touch touch);

}  // namespace cupool::sim
