// The importer's end: asks the process that wrote an export token for the descriptors of the chunks under its
// block. Waits a bounded time; trusts nothing that the other process says but the memory behind a descriptor.
// No state.
#pragma once

#include "share/wire.hpp"

namespace cupool::share {

// Maps the chunks as their descriptors arrive.
class Taker {
 public:
  // The next chunk of the block, in the order of their addresses; the block begins `offset` bytes into the
  // first. False: the chunk cannot be used, and the fetch stops. The caller closes the descriptor.
  virtual bool take(uint64_t bytes, uint64_t offset, int descriptor) = 0;

 protected:
  ~Taker() = default;
};

// kRefused: there is no such process or block, or it is another user's. kStopped: the taker stopped.
// kNoDescriptors: this process may not open more files.
enum class Fetched { kAll, kRefused, kStopped, kNoDescriptors };

struct FetchSettings {
  uint32_t user = kOwnUser;  // whose memory is taken
  // How long the other process may take for all its answers; each chunk that it gives adds a millisecond,
  // since a large block has many.
  uint64_t patience_ns = 10'000'000'000;
};

Fetched fetch(const ExportToken& token, Taker& taker, const FetchSettings& settings = {});

}  // namespace cupool::share
