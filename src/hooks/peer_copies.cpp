// See peer_copies.hpp.
#include "hooks/peer_copies.hpp"

#include <algorithm>

#include "hooks/serving.hpp"

namespace cupool::hooks {

namespace {

// The fields that all descriptions of a copy have. Memory of a device may be named as the host's, too.
template <typename Copy>
CUDA_MEMCPY3D_PEER described(const Owners& owners, const Copy& copy) {
  CUDA_MEMCPY3D_PEER made = {};
  made.dstMemoryType = copy.dstMemoryType;
  made.dstHost = copy.dstHost;
  made.dstDevice = copy.dstDevice;
  made.dstContext = owners.to();
  made.dstXInBytes = copy.dstXInBytes;
  made.dstY = copy.dstY;
  made.dstPitch = copy.dstPitch;
  made.srcMemoryType = copy.srcMemoryType;
  made.srcHost = copy.srcHost;
  made.srcDevice = copy.srcDevice;
  made.srcContext = owners.from();
  made.srcXInBytes = copy.srcXInBytes;
  made.srcY = copy.srcY;
  made.srcPitch = copy.srcPitch;
  made.WidthInBytes = copy.WidthInBytes;
  made.Height = copy.Height;
  return made;
}

CUresult copy_box(const CUDA_MEMCPY3D_PEER& box, Form form, CUstream stream) {
  if (form == Form::kOnStream) return cuda::real.cuMemcpy3DPeerAsync(&box, stream);
  return stream == CU_STREAM_PER_THREAD ? cuda::real.cuMemcpy3DPeer_ptds(&box)
                                        : cuda::real.cuMemcpy3DPeer(&box);
}

}  // namespace

driver::Context context_of(CUstream stream) {
  const order::Timeline* const order = timeline_of(stream);
  return order != nullptr ? order->context() : nullptr;
}

template <typename Visit>
void Owners::for_each_but(driver::Context maker, Visit&& visit) const {
  memory.order().for_each([&](order::Timeline& timeline) {
    const driver::Context context = timeline.context();
    const bool is_meant = count_ > kMost || std::find(all_, all_ + count_, context) != all_ + count_;
    if (context != maker && is_meant) visit(timeline);
  });
}

order::Timeline* Owners::wait_for_old_work(driver::Context maker, CUstream stream) const {
  order::Timeline* refusing = nullptr;
  // (The maker has a name here only if it has memory of ours.)
  const driver::Context streams = maker != nullptr ? maker : owner_of(stream);
  for_each_but(maker, [&](order::Timeline& timeline) {
    if (!timeline.before_visit(lane_of(stream), reinterpret_cast<driver::Stream>(stream), streams))
      refusing = &timeline;
  });
  return refusing;
}

// To them it is like work on their legacy stream.
void Owners::note_work(driver::Context maker) const {
  for_each_but(maker, [](order::Timeline& timeline) { timeline.after_submit(order::Lane::kLegacy); });
}

bool Owners::devices_differ(driver::Context maker) const {
  int to = 0;
  int from = 0;
  int makers = driver::kEveryDevice;
  if (!memory.device_of(sides_[0], &to) || !memory.device_of(sides_[1], &from)) return false;
  if (maker != nullptr) memory.device_of(maker, &makers);
  return to != from || to != makers;
}

CUresult copy_between(const Owners& owners, Form form, CUstream stream, CUdeviceptr to, CUdeviceptr from,
                      size_t bytes, CUstream) {
  if (form == Form::kPlain)
    return stream == CU_STREAM_PER_THREAD
               ? cuda::real.cuMemcpyPeer_ptds(to, owners.to(), from, owners.from(), bytes)
               : cuda::real.cuMemcpyPeer(to, owners.to(), from, owners.from(), bytes);
  return cuda::real.cuMemcpyPeerAsync(to, owners.to(), from, owners.from(), bytes, stream);
}

CUresult copy_between(const Owners& owners, Form form, CUstream stream, const CUDA_MEMCPY2D* copy, CUstream) {
  CUDA_MEMCPY3D_PEER made = described(owners, *copy);
  made.dstHeight = copy->dstY + copy->Height;
  made.srcHeight = copy->srcY + copy->Height;
  made.Depth = 1;
  return copy_box(made, form, stream);
}

CUresult copy_between(const Owners& owners, Form form, CUstream stream, const CUDA_MEMCPY3D* copy, CUstream) {
  CUDA_MEMCPY3D_PEER made = described(owners, *copy);
  made.dstZ = copy->dstZ;
  made.dstHeight = copy->dstHeight;
  made.srcZ = copy->srcZ;
  made.srcHeight = copy->srcHeight;
  made.Depth = copy->Depth;
  return copy_box(made, form, stream);
}

}  // namespace cupool::hooks
