// See kept_blocks.hpp.
#include "trace/kept_blocks.hpp"

#include <cstring>

#include "base/pages.hpp"

namespace cupool::trace {

bool KeptBlocks::begin(uint64_t bytes) {
  memory_ = static_cast<uint8_t*>(map_pages(bytes));
  bytes_ = memory_ != nullptr ? bytes : 0;
  head_ = tail_ = 0;
  return memory_ != nullptr;
}

BlockHead KeptBlocks::head_at(size_t place) const {
  BlockHead head;
  memcpy(&head, memory_ + place, sizeof head);
  return head;
}

void KeptBlocks::drop_until(uint64_t end) {
  while (tail_ + bytes_ < end) tail_ += visit(tail_, [](const uint8_t*, size_t) {});
}

void KeptBlocks::put(const uint8_t* data, size_t bytes) {
  while (bytes >= sizeof(BlockHead) && bytes_ != 0) {
    BlockHead head;
    memcpy(&head, data, sizeof head);
    const size_t size = sizeof head + head.bytes;
    const size_t place = head_ % bytes_;
    if (size > bytes_ / 2) return;
    if (bytes_ - place < size) {
      drop_until(head_ + (bytes_ - place));
      if (bytes_ - place >= sizeof(uint32_t)) memset(memory_ + place, 0, sizeof(uint32_t));
      head_ += bytes_ - place;
      continue;
    }
    drop_until(head_ + size);
    memcpy(memory_ + place, data, size);
    head_ += size;
    data += size;
    bytes -= size;
  }
}

uint64_t KeptBlocks::oldest_live_set() const {
  for (uint64_t at = tail_; at != head_;) {
    bool is_first = false;
    const uint64_t step = visit(at, [&](const uint8_t* block, size_t) {
      BlockHead head;
      memcpy(&head, block, sizeof head);
      is_first = head.kind == static_cast<uint16_t>(BlockKind::kLive) && (head.flags & kFirstPart) != 0;
    });
    if (is_first) return at;
    at += step;
  }
  return tail_;
}

}  // namespace cupool::trace
