// See blocks.hpp.
#include "hooks/sharing/blocks.hpp"

namespace cupool::hooks {

Whose look_up(CUdeviceptr address, FoundBlock* out) {
  // Blocks imported under sealed handles are known even where the pool itself does not serve.
  if (Reentry::inside()) return Whose::kDrivers;
  const bool may_be_gone = memory.may_be_gone(address);
  if (is_serving() && memory.owns(address)) {
    memory::BlockInfo held;
    if (!memory.find(address, &held)) return may_be_gone ? Whose::kDrivers : Whose::kNotLive;
    *out = {held.start, held.bytes,  held.segment,      held.segment_number, held.dedicated,
            false,      held.mapped, held.free_pending, held.context};
    return Whose::kBlock;
  }
  Imports::Found found;
  if (!imports.find(address, &found)) return Whose::kDrivers;
  out->start = found.start;
  out->bytes = found.bytes;
  out->imported = true;
  out->mapped = found.chunks;
  out->context = reinterpret_cast<driver::Context>(found.context);
  return out->bytes != 0 ? Whose::kBlock : Whose::kNotLive;
}

Whose look_up_lasting(CUdeviceptr address, FoundBlock* out) {
  const Whose whose = look_up(address, out);
  return whose == Whose::kBlock && out->free_pending ? Whose::kNotLive : whose;
}

}  // namespace cupool::hooks
