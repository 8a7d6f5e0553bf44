// Copies and memsets of every shape, as one box of bytes between two sides, submitted as one operation.
// Who waits for what follows the documented table: synchronous copies with the host wait, copies between
// device memories and memsets do not, a copy to pageable memory always does. Under the state mutex.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>

#include "sim/arrays.hpp"
#include "sim/streams.hpp"

namespace cupool::sim {

// One side of a copy: an address (device or host, told apart by where it lies) or an array.
struct Side {
  CUdeviceptr address = 0;
  std::shared_ptr<SimArray> array;
  std::uint64_t offset = 0;  // bytes to the first element
  std::uint64_t pitch = 0;   // bytes from row to row
  std::uint64_t slice = 0;   // bytes from slice to slice
  // The device that reaches it, which matters for mapped memory: the stream's own unless the call names one.
  int device = CU_DEVICE_INVALID;
  std::shared_ptr<Context> context;  // that the call names for it
};

struct Box {
  std::uint64_t width = 0;  // bytes
  std::uint64_t height = 1;
  std::uint64_t depth = 1;
};

inline Side linear(CUdeviceptr p) {
  Side side;
  side.address = p;
  return side;
}
inline Side linear(const void* p) { return linear(reinterpret_cast<CUdeviceptr>(p)); }
// A side that a context of its own reaches: copies between contexts need no access of one to the other's.
Side within(CUcontext context, Side side);

enum class Waits { kAsync, kSync };

CUresult submit_copy(const StreamPtr& stream, const char* what, const Side& to, const Side& from,
                     const Box& box, Waits waits);
// The same for a function that takes no stream. Between the memories of two contexts it is ordered as work of
// both legacy streams: after earlier work of their blocking streams and before later, whatever the
// documentation says about all work (measured on an H200).
CUresult submit_plain_copy(const StreamPtr& stream, const char* what, const Side& to, const Side& from,
                           const Box& box, Waits waits);
// A copy that a graph makes. Null: the memory is not there.
std::shared_ptr<const Work> copy_work(const char* what, int device, Side to, Side from, const Box& box);
std::shared_ptr<const Work> copy_node_work(const char* what, int device, const CUDA_MEMCPY3D& copy);
// `pattern` has `unit` bytes (1, 2 or 4); width counts units. Null: the memory is not there to be set.
std::shared_ptr<const Work> memset_work(const char* what, int device, CUdeviceptr p, std::uint64_t pitch,
                                        unsigned pattern, unsigned unit, std::uint64_t width,
                                        std::uint64_t height);
CUresult submit_memset(const StreamPtr& stream, const char* what, CUdeviceptr p, std::uint64_t pitch,
                       unsigned pattern, unsigned unit, std::uint64_t width, std::uint64_t height);

}  // namespace cupool::sim
