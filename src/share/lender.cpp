// See lender.hpp.
#include "share/lender.hpp"

#include <unistd.h>

#include "base/descriptors.hpp"
#include "base/fork_gate.hpp"

namespace cupool::share {
namespace {

using driver::Address;
using driver::Chunk;
using driver::kSuccess;
using memory::Taint;

void drop(Loan* loan) {
  for (uint32_t i = 0; i < loan->reply.count; ++i) close(loan->descriptors[i]);
  loan->reply = {};
}

}  // namespace

bool Lender::lend(const ExportToken& token, uint32_t first, uint32_t most, Loan* out) {
  if (!is_live(token) || !fill(token, first, most, out)) return false;
  // Life numbers are never reused: if the block still has the same one, all chunks were its own.
  if (is_live(token)) return true;
  drop(out);
  return false;
}

bool Lender::can_lend(driver::Address address) {
  const NoFork gate;
  const int descriptor = descriptor_at(address);
  if (descriptor >= 0) close(descriptor);
  return descriptor >= 0;
}

bool Lender::is_live(const ExportToken& token) {
  constexpr uint32_t kExported = 1u << static_cast<unsigned>(Taint::kExported);
  memory::BlockInfo held;
  if (!memory_.find(token.start, &held) || !held.mapped) return false;
  if (held.start != token.start || held.bytes != token.bytes) return false;
  bool same = false;
  memory_.with_mark(token.start, [&](const memory::Mark& mark) {
    same = mark.life == token.life && (mark.taints & kExported) != 0;
  });
  return same;
}

bool Lender::fill(const ExportToken& token, uint32_t first, uint32_t most, Loan* out) {
  const Address end = token.start + token.bytes;
  Reply& reply = out->reply;
  uint32_t number = 0;
  Address at = token.start;
  for (; at < end && number < kMostChunks; ++number) {
    const mapped::Part chunk = memory_.chunk_at(at);
    if (chunk.bytes == 0) break;
    if (number == 0) reply.offset = at - chunk.start;
    if (number >= first && reply.count < most) {
      const int descriptor = descriptor_at(at);
      if (descriptor < 0) break;
      reply.bytes[reply.count] = chunk.bytes;
      out->descriptors[reply.count++] = descriptor;
    }
    at = chunk.start + chunk.bytes;
  }
  reply.total = number;
  if (at >= end && reply.count != 0) return true;
  drop(out);
  return false;
}

// The descriptor of the chunk at an address; -1: there is none. The chunk is held meanwhile: once its block
// is freed, the driver may give its handle to another chunk.
int Lender::descriptor_at(driver::Address address) {
  Chunk chunk = Chunk::kNone;
  if (mapping_.retain(address, &chunk) != kSuccess) return -1;
  int descriptor = -1;
  if (mapping_.export_chunk(chunk, &descriptor) != kSuccess) descriptor = -1;
  mapping_.release(chunk);
  // The driver took the lowest number, which the program may expect of its own next open().
  return move_up(descriptor);
}

}  // namespace cupool::share
