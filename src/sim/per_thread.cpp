// The per-thread-default-stream forms, made from names.def: the same call, in which stream 0 means the
// calling thread's own stream. Faults and counts go under the plain name. Nothing else may be decided here.
#include <cuda.h>

#include "base/trampoline.hpp"
#include "sim/entry.hpp"

namespace {

template <auto plain>
struct PerThread;

template <typename... Arguments, CUresult (*plain)(Arguments...)>
struct PerThread<plain> {
  static CUresult call(Arguments... arguments) {
    const cupool::sim::PerThreadScope scope;
    return plain(arguments...);
  }
};

}  // namespace

#define SIM_NAME(name, symbol, version)
#define SIM_ALIAS(name, symbol, version)
#define SIM_NAME_PT(name, symbol, version, per_thread)                   \
  CUPOOL_SLOT(per_thread, decltype(&symbol), &PerThread<&symbol>::call); \
  CUPOOL_TRAMPOLINE(per_thread, CUPOOL_JUMP_SLOT("cupool_slot_" #per_thread));
#include "sim/names.def"
