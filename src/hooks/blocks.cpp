// See blocks.hpp.
#include "hooks/blocks.hpp"

namespace cupool::hooks {

Whose look_up(CUdeviceptr address, Block* out) {
  // Blocks imported under sealed handles are known even where the pool itself does not serve.
  if (Reentry::inside()) return Whose::kDrivers;
  if (is_serving() && memory.owns(address)) {
    memory::Held held;
    if (!memory.find(address, &held)) return Whose::kNobodys;
    *out = {held.start, held.bytes, held.segment, held.segment_number,
            held.whole, false,      held.mapped,  held.context};
    return Whose::kBlock;
  }
  if (!imports.find(address, &out->start, &out->bytes, &out->mapped)) return Whose::kDrivers;
  out->imported = true;
  return out->bytes != 0 ? Whose::kBlock : Whose::kNobodys;
}

}  // namespace cupool::hooks
