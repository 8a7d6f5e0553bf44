// See lending.hpp.
#include "hooks/sharing/lending.hpp"

#include <bit>

#include "base/after_fork.hpp"
#include "base/log.hpp"
#include "share/lender.hpp"
#include "share/server.hpp"

namespace cupool::hooks {
namespace {

constinit NoDestroy<share::Lender> lender{memory, mapping};
constinit NoDestroy<share::Server> server{lender.value};
CUPOOL_AFTER_FORK(lending_after_fork, [] { server.value.forget_after_fork(); });

}  // namespace

bool can_lend(const FoundBlock& block) { return lender.value.can_lend(block.start); }

CUresult write_export_token(const FoundBlock& block, CUipcMemHandle* out) {
  uint64_t life = 0;
  memory.with_mark(block.start, [&](const memory::Mark& mark) { life = mark.life; });
  share::Handle handle;
  // Check now: an importer that gets nothing could not be told the reason.
  if (life != 0 && can_lend(block) && server.value.offer(block.start, block.bytes, life, &handle)) {
    *out = std::bit_cast<CUipcMemHandle>(handle);
    return CUDA_SUCCESS;
  }
  stats::count(stats::Event::refused_for_mapping);
  static constinit log::Once once;
  if (once.first()) {
    log::line(
        "mapped memory of this process cannot be shared with others: the driver exports none, there is no "
        "thread or descriptor to be had, or no socket can be made in CUPOOL_NEIGHBOURS_DIR; "
        "CUPOOL_SEGMENTS=driver shares it another way");
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

bool is_own_export_token(const share::ExportToken& token) { return server.value.is_own(token); }

void stop_lending() { server.value.stop(); }

}  // namespace cupool::hooks
