// The exported names of every row that submits work, makes a node of a graph, or is hooked only to be
// repeated, made from the table: no function is written out.
#include "hooks/submit/submit.hpp"

#include "base/trampoline.hpp"
#include "hooks/doors/untracked_work.hpp"
#include "hooks/submit/nodes.hpp"

namespace cupool::hooks {

namespace entries = cuda::entries;

namespace {

// The hook that a row's kind makes.
template <cuda::Kind kind, int place, typename Self, typename Function>
consteval Function hook_of() {
  constexpr cuda::Way kWay = cuda::row_of(kind).way;
  if constexpr (kWay == cuda::Way::kNode) {
    return &NodeHook<Self, Function>::call;
  } else if constexpr (kWay == cuda::Way::kRepeat) {
    return &RoomHook<Self, Function>::call;
  } else {
    return &SubmitHook<kind, place, Self, Function>::call;
  }
}

}  // namespace

#define CUPOOL_MADE(kind, symbol, like, place)                                         \
  CUPOOL_SLOT(symbol, decltype(&like),                                                 \
              (hook_of<cuda::Kind::kind, place, entries::symbol, decltype(&like)>())); \
  CUPOOL_TRAMPOLINE(symbol, CUPOOL_JUMP_SLOT("cupool_slot_" #symbol));
#define CUPOOL_UNTRACKED(name)                                          \
  CUPOOL_SLOT(name, UntrackedTarget, &untracked_target<entries::name>); \
  CUPOOL_TRAMPOLINE(name, CUPOOL_JUMP_WITH_SLOT("cupool_slot_" #name, "cupool_untracked_jump"));
#include "cuda/api.def"

}  // namespace cupool::hooks
