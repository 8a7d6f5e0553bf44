// See peer_copies.hpp.
#include "hooks/peer_copies.hpp"

#include "hooks/serving.hpp"

namespace cupool::hooks {

namespace {

// The fields that all descriptions of a copy have.
template <typename Copy>
CUDA_MEMCPY3D_PEER described(const MappedOwners& owners, const Copy& copy) {
  CUDA_MEMCPY3D_PEER made = {};
  made.dstMemoryType = copy.dstMemoryType;
  made.dstDevice = copy.dstDevice;
  made.dstContext = owners.to();
  made.dstXInBytes = copy.dstXInBytes;
  made.dstY = copy.dstY;
  made.dstPitch = copy.dstPitch;
  made.srcMemoryType = copy.srcMemoryType;
  made.srcDevice = copy.srcDevice;
  made.srcContext = owners.from();
  made.srcXInBytes = copy.srcXInBytes;
  made.srcY = copy.srcY;
  made.srcPitch = copy.srcPitch;
  made.WidthInBytes = copy.WidthInBytes;
  made.Height = copy.Height;
  return made;
}

}  // namespace

bool MappedOwners::devices_differ(driver::Context maker) const {
  int to = 0;
  int from = 0;
  int makers = driver::kEveryDevice;
  if (!memory.device_of(contexts_[0], &to) || !memory.device_of(contexts_[1], &from)) return false;
  if (maker != nullptr) memory.device_of(maker, &makers);
  return to != from || to != makers;
}

CUresult copy_between(const MappedOwners& owners, CUstream stream, CUdeviceptr to, CUdeviceptr from,
                      size_t bytes, CUstream) {
  return cuda::real.cuMemcpyPeerAsync(to, owners.to(), from, owners.from(), bytes, stream);
}

CUresult copy_between(const MappedOwners& owners, CUstream stream, const CUDA_MEMCPY2D* copy, CUstream) {
  CUDA_MEMCPY3D_PEER made = described(owners, *copy);
  made.dstHeight = copy->dstY + copy->Height;
  made.srcHeight = copy->srcY + copy->Height;
  made.Depth = 1;
  return cuda::real.cuMemcpy3DPeerAsync(&made, stream);
}

CUresult copy_between(const MappedOwners& owners, CUstream stream, const CUDA_MEMCPY3D* copy, CUstream) {
  CUDA_MEMCPY3D_PEER made = described(owners, *copy);
  made.dstZ = copy->dstZ;
  made.dstHeight = copy->dstHeight;
  made.srcZ = copy->srcZ;
  made.srcHeight = copy->srcHeight;
  made.Depth = copy->Depth;
  return cuda::real.cuMemcpy3DPeerAsync(&made, stream);
}

}  // namespace cupool::hooks
