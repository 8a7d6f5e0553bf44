// The exported names of every row that submits work, makes a node of a graph, or is hooked only to be
// repeated, made from the table: no function is written out.
#include "hooks/submit/submit.hpp"

#include "base/trampoline.hpp"
#include "hooks/doors/untracked_work.hpp"
#include "hooks/submit/nodes.hpp"

namespace cupool::hooks {

using cuda::Kind;
namespace entries = cuda::entries;

#define CUPOOL_EXPORT(kind, symbol, like, place)                                         \
  CUPOOL_SLOT(symbol, decltype(&like),                                                   \
              (&SubmitHook<Kind::kind, place, entries::symbol, decltype(&like)>::call)); \
  CUPOOL_TRAMPOLINE(symbol, CUPOOL_JUMP_SLOT("cupool_slot_" #symbol));

#define CUPOOL_EXPORT_kRoomOnly(kind, symbol, like, place)                                   \
  CUPOOL_SLOT(symbol, decltype(&like), (&RoomHook<entries::symbol, decltype(&like)>::call)); \
  CUPOOL_TRAMPOLINE(symbol, CUPOOL_JUMP_SLOT("cupool_slot_" #symbol));
#define CUPOOL_EXPORT_kNode(kind, symbol, like, place)                                       \
  CUPOOL_SLOT(symbol, decltype(&like), (&NodeHook<entries::symbol, decltype(&like)>::call)); \
  CUPOOL_TRAMPOLINE(symbol, CUPOOL_JUMP_SLOT("cupool_slot_" #symbol));
#define CUPOOL_EXPORT_kBody(kind, symbol, like, place)
#define CUPOOL_EXPORT_kStream CUPOOL_EXPORT
#define CUPOOL_EXPORT_kStreamPerThread CUPOOL_EXPORT
#define CUPOOL_EXPORT_kGate CUPOOL_EXPORT
#define CUPOOL_EXPORT_kGatePerThread CUPOOL_EXPORT
#define CUPOOL_EXPORT_kGraph CUPOOL_EXPORT
#define CUPOOL_EXPORT_kGraphPerThread CUPOOL_EXPORT
#define CUPOOL_EXPORT_kDefault CUPOOL_EXPORT
#define CUPOOL_EXPORT_kDefaultPerThread CUPOOL_EXPORT
#define CUPOOL_EXPORT_kConfig CUPOOL_EXPORT
#define CUPOOL_EXPORT_kConfigPerThread CUPOOL_EXPORT
#define CUPOOL_EXPORT_kList CUPOOL_EXPORT

#define CUPOOL_REAL(name)
#define CUPOOL_LATE(name, version)
#define CUPOOL_DOUBT(name)                                      \
  CUPOOL_SLOT(name, DoubtTarget, &doubt_target<entries::name>); \
  CUPOOL_TRAMPOLINE(name, CUPOOL_JUMP_WITH_SLOT("cupool_slot_" #name, "cupool_doubt_jump"));
#define CUPOOL_ROW(kind, symbol, like, place) CUPOOL_EXPORT_##kind(kind, symbol, like, place)
#include "cuda/api.def"

}  // namespace cupool::hooks
