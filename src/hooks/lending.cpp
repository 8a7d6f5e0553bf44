// See lending.hpp.
#include "hooks/lending.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <bit>

#include "base/after_fork.hpp"
#include "base/log.hpp"
#include "handover/server.hpp"

namespace cupool::hooks {
namespace {

using driver::Chunk;
using driver::kSuccess;

// The descriptor of the chunk at an address; -1: there is none. The chunk is held meanwhile: if its block is
// freed, its handle may be the driver's for another chunk before it is exported.
int descriptor_at(driver::Address address) {
  Chunk chunk = Chunk::kNone;
  if (mapping().retain(address, &chunk) != kSuccess) return -1;
  int descriptor = -1;
  if (mapping().export_chunk(chunk, &descriptor) != kSuccess) descriptor = -1;
  if (descriptor >= 0) fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  mapping().release(chunk);
  return descriptor;
}

class Lender final : public handover::Source {
 public:
  // On the thread of the server.
  bool lend(const handover::Ticket& ticket, uint32_t first, uint32_t most, handover::Loan* out) override {
    if (!is_live(ticket) || !fill(ticket, first, most, out)) return false;
    // Lives are not numbered twice: if it is the same one still, all chunks were its own.
    if (is_live(ticket)) return true;
    drop(out);
    return false;
  }

 private:
  static bool is_live(const handover::Ticket& ticket) {
    constexpr uint32_t kExported = 1u << static_cast<unsigned>(memory::Taint::kExported);
    memory::Held held;
    if (!is_serving() || !memory.find(ticket.start, &held)) return false;
    if (!held.mapped || held.start != ticket.start || held.bytes != ticket.bytes) return false;
    bool same = false;
    memory.with_mark(ticket.start, [&](const memory::Mark& mark) {
      same = mark.life == ticket.life && (mark.taints & kExported) != 0;
    });
    return same;
  }

  static bool fill(const handover::Ticket& ticket, uint32_t first, uint32_t most, handover::Loan* out) {
    const driver::Address end = ticket.start + ticket.bytes;
    uint32_t number = 0;
    uint32_t given = 0;
    for (driver::Address at = ticket.start; at < end; ++number) {
      const mapped::Part chunk = memory.pools().chunk_at(at);
      if (chunk.bytes == 0 || number == handover::kMostChunks) break;
      if (number == 0) out->reply.offset = at - chunk.start;
      if (number >= first && given < most) {
        const int descriptor = descriptor_at(at);
        if (descriptor < 0) break;
        out->reply.bytes[given] = chunk.bytes;
        out->descriptors[given++] = descriptor;
      }
      at = chunk.start + chunk.bytes;
      if (at < end) continue;
      out->reply.total = number + 1;
    }
    out->reply.count = given;
    if (out->reply.total != 0 && given != 0) return true;
    drop(out);
    return false;
  }

  static void drop(handover::Loan* out) {
    for (uint32_t i = 0; i < out->reply.count; ++i) close(out->descriptors[i]);
    out->reply = {};
  }
};

constinit Lender lender;
constinit NoDestroy<handover::Server> server{lender};
CUPOOL_AFTER_FORK(lending_after_fork, [] { server.value.forget_after_fork(); });

}  // namespace

bool can_lend(const Block& block) {
  const int descriptor = descriptor_at(block.start);
  if (descriptor >= 0) close(descriptor);
  return descriptor >= 0;
}

CUresult write_ticket(const Block& block, CUipcMemHandle* out) {
  uint64_t life = 0;
  memory.with_mark(block.start, [&](const memory::Mark& mark) { life = mark.life; });
  handover::Handle handle;
  // Asked now: an importer could not be told why it gets nothing.
  if (life != 0 && can_lend(block) && server.value.offer(block.start, block.bytes, life, &handle)) {
    *out = std::bit_cast<CUipcMemHandle>(handle);
    return CUDA_SUCCESS;
  }
  stats::count(stats::Event::refused_for_mapping);
  static constinit log::Once once;
  if (once.first()) {
    log::line(
        "mapped memory of this process cannot be shared with others: the driver exports none, or there is no "
        "thread or descriptor to be had; CUPOOL_SEGMENTS=driver shares it another way");
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

bool is_own_ticket(const handover::Ticket& ticket) { return server.value.is_own(ticket); }

void stop_lending() { server.value.stop(); }

}  // namespace cupool::hooks
