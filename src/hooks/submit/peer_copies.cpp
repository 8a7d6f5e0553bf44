// See peer_copies.hpp.
#include "hooks/submit/peer_copies.hpp"

#include <algorithm>

#include "hooks/state/serving.hpp"

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

const Owners::Owner* Owners::find(driver::Context context) const {
  const Owner* const end = all_ + std::min(count_, kMost);
  const Owner* const found =
      std::find_if(all_, end, [&](const Owner& owner) { return owner.context == context; });
  return found != end ? found : nullptr;
}

void Owners::add(driver::Context context, driver::Address block, bool is_mapped) {
  if (operands_ < kSides) sides_[operands_] = context;
  ++operands_;
  has_mapped_ = has_mapped_ || is_mapped;
  auto* owner = const_cast<Owner*>(find(context));
  if (owner == nullptr) {
    if (count_ < kMost) owner = &all_[count_];
    count_ += count_ <= kMost ? 1 : 0;
  }
  if (owner == nullptr) return;
  owner->context = context;
  // Only calls across contexts read leant_on.
  if (memory.order().only() != nullptr) return;
  if (order::Timeline* const timeline = memory.order().find(context))
    owner->leant_on = std::max(owner->leant_on, timeline->leant_on_by(block));
}

template <typename Visit>
void Owners::for_each_but(driver::Context maker, Visit&& visit) const {
  memory.order().for_each([&](order::Timeline& timeline) {
    const driver::Context context = timeline.context();
    if (context == maker) return;
    if (const Owner* const owner = find(context)) {
      visit(timeline, owner->leant_on);
    } else if (count_ > kMost) {
      visit(timeline, timeline.newest_leant_on());
    }
  });
}

order::Timeline* Owners::wait_for_old_work(driver::Context maker, CUstream stream) const {
  order::Timeline* refusing = nullptr;
  // (The maker has a name here only if it has memory of ours.)
  const driver::Context streams = maker != nullptr ? maker : owner_of(stream);
  for_each_but(maker, [&](order::Timeline& timeline, order::Epoch asked) {
    if (!timeline.before_visit(lane_of(stream), reinterpret_cast<driver::Stream>(stream), streams, asked))
      refusing = &timeline;
  });
  return refusing;
}

// To them it is like work on their legacy stream.
void Owners::note_work(driver::Context maker) const {
  for_each_but(maker,
               [](order::Timeline& timeline, order::Epoch) { timeline.after_submit(order::Lane::kLegacy); });
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
