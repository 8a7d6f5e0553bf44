// Entry points that copy rectangles and boxes, described by structures. Each structure side becomes one Side:
// an address with pitches, or an array with offsets.
#include <cuda.h>

#include <type_traits>

#include "sim/copies.hpp"
#include "sim/entry.hpp"

using namespace cupool::sim;

namespace {

// How the call takes its stream: none, or one.
using Submit = decltype(&submit_copy);

// What the structures have in common on one side.
struct Description {
  CUmemorytype type;
  CUdeviceptr device;
  const void* host;
  CUarray array;
  std::uint64_t x;
  std::uint64_t y;
  std::uint64_t z;
  std::uint64_t pitch;
  std::uint64_t height;
  CUcontext context = nullptr;  // of a copy between contexts
};

CUresult make_side(const Description& d, const Box& box, Side& side) {
  const std::uint64_t width = box.width;
  if (d.type == CU_MEMORYTYPE_ARRAY) {
    side.array = state().arrays.find(d.array);
    if (side.array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    side.offset = d.x + (d.y + d.z * side.array->rows) * side.array->row;
    return CUDA_SUCCESS;
  }
  side.address = d.type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(d.host) : d.device;
  side.pitch = d.pitch != 0 ? d.pitch : width;
  side.slice = side.pitch * (d.height != 0 ? d.height : box.height);
  side.offset = d.x + d.y * side.pitch + d.z * side.slice;
  if (d.context != nullptr) side = within(d.context, side);
  return d.pitch != 0 && d.pitch < width ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult copy(Site& site, CUstream stream, const Description& to, const Description& from, const Box& box,
              Waits waits, Submit submit) {
  return on_stream(site, stream, [&](const StreamPtr& s) -> CUresult {
    Side to_side;
    Side from_side;
    CUresult result = make_side(to, box, to_side);
    if (result == CUDA_SUCCESS) result = make_side(from, box, from_side);
    return result != CUDA_SUCCESS ? result : submit(s, site.name(), to_side, from_side, box, waits);
  });
}

CUresult copy_2d(Site& site, CUstream stream, const CUDA_MEMCPY2D* c, Waits waits, Submit submit) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Description to{
      c->dstMemoryType, c->dstDevice, c->dstHost, c->dstArray, c->dstXInBytes, c->dstY, 0, c->dstPitch, 0};
  const Description from{
      c->srcMemoryType, c->srcDevice, c->srcHost, c->srcArray, c->srcXInBytes, c->srcY, 0, c->srcPitch, 0};
  return copy(site, stream, to, from, Box{c->WidthInBytes, c->Height, 1}, waits, submit);
}

template <typename Copy>
Description target_of(const Copy& c) {
  return {c.dstMemoryType, c.dstDevice, c.dstHost,  c.dstArray, c.dstXInBytes,
          c.dstY,          c.dstZ,      c.dstPitch, c.dstHeight};
}
template <typename Copy>
Description source_of(const Copy& c) {
  return {c.srcMemoryType, c.srcDevice, c.srcHost,  c.srcArray, c.srcXInBytes,
          c.srcY,          c.srcZ,      c.srcPitch, c.srcHeight};
}

template <typename Copy>
CUresult copy_3d(Site& site, CUstream stream, const Copy* c, Waits waits, Submit submit) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Description to = target_of(*c);
  Description from = source_of(*c);
  if constexpr (std::is_same_v<Copy, CUDA_MEMCPY3D_PEER>) {
    to.context = c->dstContext;
    from.context = c->srcContext;
  }
  return copy(site, stream, to, from, Box{c->WidthInBytes, c->Height, c->Depth}, waits, submit);
}

}  // namespace

std::shared_ptr<const Work> cupool::sim::copy_node_work(const char* what, int device,
                                                        const CUDA_MEMCPY3D& copy) {
  const Box box{copy.WidthInBytes, copy.Height, copy.Depth};
  Side to;
  Side from;
  const bool is_sound = make_side(target_of(copy), box, to) == CUDA_SUCCESS &&
                        make_side(source_of(copy), box, from) == CUDA_SUCCESS;
  return is_sound ? copy_work(what, device, to, from, box) : nullptr;
}

extern "C" {

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* c) {
  return copy_2d(SIM_SITE(cuMemcpy2D_v2), nullptr, c, Waits::kSync, submit_plain_copy);
}
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* c) {
  return copy_2d(SIM_SITE(cuMemcpy2DUnaligned_v2), nullptr, c, Waits::kSync, submit_plain_copy);
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* c, CUstream stream) {
  return copy_2d(SIM_SITE(cuMemcpy2DAsync_v2), stream, c, Waits::kAsync, submit_copy);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* c) {
  return copy_3d(SIM_SITE(cuMemcpy3D_v2), nullptr, c, Waits::kSync, submit_plain_copy);
}
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* c, CUstream stream) {
  return copy_3d(SIM_SITE(cuMemcpy3DAsync_v2), stream, c, Waits::kAsync, submit_copy);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* c) {
  return copy_3d(SIM_SITE(cuMemcpy3DPeer), nullptr, c, Waits::kSync, submit_plain_copy);
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* c, CUstream stream) {
  return copy_3d(SIM_SITE(cuMemcpy3DPeerAsync), stream, c, Waits::kAsync, submit_copy);
}

}  // extern "C"
