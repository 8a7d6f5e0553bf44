// What NVML says of a device's memory: how much is in use by everybody, and how much of it the driver charges
// a process. NVML comes with the driver; it is opened beside the libcuda.so.1 in use, or where the system has
// it, and needs neither a context nor the program's help. One conversation is one object: between two of them
// NVML is shut down and holds no descriptor. Not for a signal handler. Takes milliseconds.
#pragma once

#include <cstdint>

#include "cuda/cuda_api.hpp"

namespace cupool::cuda {

class Nvml {
 public:
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool is_there() const { return is_there_; }
  // Bytes that are not free. False: not known.
  bool in_use(CUdevice device, uint64_t* bytes) const;
  // Bytes that this process is charged. False: NVML does not know the process, as in most containers.
  bool charged(CUdevice device, uint64_t* bytes) const;

 private:
  bool is_there_ = false;
};

}  // namespace cupool::cuda
