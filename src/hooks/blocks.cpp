// See blocks.hpp.
#include "hooks/blocks.hpp"

namespace cupool::hooks {

Whose look_up(CUdeviceptr address, Block* out) {
  // Blocks imported under sealed handles are known even where the pool itself does not serve.
  if (Reentry::inside()) return Whose::kDrivers;
  // While a context ends, the driver may have given its addresses away again before we know. Read first:
  // when that is over, what is read next is true again.
  const bool may_be_stale = memory::ContextEnding::is_under_way();
  if (is_serving() && memory.owns(address)) {
    memory::Held held;
    if (!memory.find(address, &held)) return may_be_stale ? Whose::kDrivers : Whose::kNobodys;
    *out = {held.start, held.bytes, held.segment, held.segment_number,
            held.whole, false,      held.mapped,  held.context};
    return Whose::kBlock;
  }
  Imports::Found found;
  if (!imports.find(address, &found)) return Whose::kDrivers;
  out->start = found.start;
  out->bytes = found.bytes;
  out->imported = true;
  out->mapped = found.chunks;
  out->context = reinterpret_cast<driver::Context>(found.context);
  return out->bytes != 0 ? Whose::kBlock : Whose::kNobodys;
}

}  // namespace cupool::hooks
