// Host memory that the device reaches through the bus, for when its own is used up (CUPOOL_SPILL): a source
// of dedicated blocks. A large block is a chunk at addresses of its own; blocks up to 1 MiB share chunks,
// each of which is cut into equal slots and goes back with the last of its blocks. The tables are under
// `lock_`, a leaf: never held across a call of the driver. Does not decide when to spill: memory/ does.
#pragma once

#include <atomic>
#include <compare>
#include <map>
#include <set>
#include <vector>

#include "base/bytes.hpp"
#include "base/lock.hpp"
#include "driver/driver.hpp"
#include "driver/mapping.hpp"
#include "driver/source.hpp"
#include "mapped/space.hpp"

namespace cupool::mapped {

class Spill final : public driver::Source {
 public:
  // `most`: host memory in all, a share is one of the device's memory.
  Spill(driver::Driver& driver, driver::Mapping& mapping, Size most)
      : driver_(driver), mapping_(mapping), most_(most) {}

  Status allocate(size_t bytes, Address* out) override;
  Status release(Address start) override;
  Status release_in(driver::Context context, Address start) override;
  bool might_give(int device, uint64_t bytes) override;
  // The chunk at an address; no bytes: there is none.
  Part chunk_at(Address address);
  // Others than this process may keep the block at an address: no new block comes into its chunk.
  void share(Address address);
  // Lets another device access all blocks, now and in future: it may use memory of some context.
  void let_in(int device);
  // The context has ended, and its work with it.
  void drop(Address start) override;
  bool is_on_device() const override { return false; }
  bool is_mapped() const override { return true; }

 private:
  // Chunks whose slots serve the same blocks.
  struct Kind {
    int device = 0;
    uint64_t slot = 0;  // bytes of each; at least a chunk's: the block is alone

    // NOLINTNEXTLINE(modernize-use-nullptr): no pointer is compared
    auto operator<=>(const Kind&) const = default;
  };
  struct HostChunk {
    driver::Chunk chunk = driver::Chunk::kNone;
    uint64_t bytes = 0;
    Kind kind;
    std::vector<uint32_t> free;  // slots
    bool is_shared = false;

    bool is_free() const { return free.size() * kind.slot == bytes; }
  };
  using Chunks = std::map<Address, HostChunk>;

  // Host memory that blocks of a device may take in all; 0: it cannot be mapped there.
  uint64_t most_of(int device);
  bool book(uint64_t bytes, uint64_t most);
  bool take_slot(const Kind& kind, Address* out);
  Status fill(HostChunk* chunk, Address* out);
  Status take_away(Address address);
  Chunks::iterator containing_locked(Address address) CUPOOL_REQUIRES(lock_);
  void open_locked(Address start, const HostChunk& chunk) CUPOOL_REQUIRES(lock_);

  driver::Driver& driver_;
  driver::Mapping& mapping_;
  const Size most_;
  std::atomic<uint64_t> taken_{0};
  Lock lock_{Rank::kSpill};
  Chunks chunks_ CUPOOL_GUARDED_BY(lock_);
  std::map<Kind, std::set<Address>> open_ CUPOOL_GUARDED_BY(lock_);  // chunks with a slot to give
  std::map<int, uint64_t> most_of_ CUPOOL_GUARDED_BY(lock_);
  std::vector<int> guests_ CUPOOL_GUARDED_BY(lock_);
};

}  // namespace cupool::mapped
