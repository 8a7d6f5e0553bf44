// The mapped memory of one context: reserved addresses, several times as many as the device has memory, and
// the record of which chunk of physical memory lies where (addresses.hpp). Hands out runs: addresses side by
// side with memory from end to end, made of one or more chunks, and takes any whole chunks of them back. The
// table is under `lock_`, a leaf: never held across a call of the driver. The caller unmaps only memory whose
// work is done. A chunk may move before that: it is mapped at its new place too, and its old addresses are
// vacated, mapped, until the caller says that the work there is done.
#pragma once

#include <array>
#include <atomic>
#include <vector>

#include "base/lock.hpp"
#include "driver/mapping.hpp"
#include "mapped/addresses.hpp"
#include "stats/device.hpp"
#include "upstream/upstream.hpp"

namespace cupool::mapped {

using driver::Status;

class Space {
 public:
  // No `mapping`: it never serves.
  Space(driver::Mapping* mapping, upstream::Upstream& upstream, uint64_t device_bytes)
      : mapping_(mapping), upstream_(upstream), device_bytes_(device_bytes), serves_(mapping != nullptr) {
    devices_.push_back(upstream.device());
  }

  // Whether new memory is to come from here; what is mapped stays in any case.
  bool serves() const { return serves_.load(std::memory_order_relaxed); }
  void stop() { serves_.store(false, std::memory_order_relaxed); }

  // What a run is made of: the chunks of mapped parts, which move, and behind them `more` bytes of new chunks
  // of at most `most` bytes each. Work on the parts is done with epoch `until`. pre: all of a part's chunks,
  // nobody else knows them, and all sizes are multiples of kMappingStep.
  struct Run {
    const Part* parts = nullptr;
    size_t count = 0;
    order::Epoch until = 0;
    uint64_t more = 0;
    uint64_t most = 0;
  };
  // Maps a run, at an address, so that it continues what lies there, or anywhere (`at` 0, which tells where
  // then). kOutOfMemory: the driver or CUPOOL_LIMIT refuses, or the place is taken; kNotSupported: there are
  // no addresses. Nothing has changed then.
  Status map(const Run& run, Address* at);
  // How many chunks a part has, and whether so many may move now: only so many left places are recorded.
  size_t count_chunks(const Part& part);
  bool may_move(size_t chunks) const { return vacated_count() + chunks <= kMostVacated; }
  // Unmaps addresses that chunks have vacated, whose work is done with epoch `done`.
  void unmap_vacated(order::Epoch done);
  bool has_vacated() const { return vacated_count() != 0; }
  // Gives whole chunks back to the driver; false: it refused, and nothing has changed. Does not wait.
  // pre: all work on them is done, and nobody else knows them.
  bool unmap(Address start, uint64_t bytes);

  // The chunks that lie wholly inside a mapped range, as few from its start as make `enough` bytes.
  Part chunks_in(Address start, uint64_t bytes, uint64_t enough = ~uint64_t{0}) {
    Guard hold(lock_);
    return addresses_.chunks_in(start, bytes, enough);
  }
  // All chunks that a mapped range touches.
  Part chunks_around(Address start, uint64_t bytes) {
    Guard hold(lock_);
    return addresses_.chunks_around(start, bytes);
  }
  // The chunk at an address; none: nothing is mapped there.
  Part chunk_at(Address address) {
    Guard hold(lock_);
    return addresses_.chunk_at(address);
  }
  // Whether a run could be mapped there.
  bool is_vacant(Address at, uint64_t bytes) {
    Guard hold(lock_);
    return addresses_.is_vacant(at, bytes);
  }

  // Lets another device access all that is and will be mapped, or no longer.
  void allow(int device);
  void forbid(int device);

  // The context has ended, and its work with it: unmaps everything and gives the addresses back. (The driver
  // does not do that by itself.) The account was closed before.
  void unmap_all();
  // The same without a call: the driver refused to end the context, and the program may still use its blocks.
  void forget_all();

 private:
  using Page = Addresses::Page;
  using Reservation = Addresses::Reservation;

  bool claim(uint64_t bytes, Address* out) CUPOOL_EXCLUDES(lock_, reserving_);
  bool reserve(uint64_t bytes);
  void mark(Address at, uint64_t bytes, Page page);
  Page page_at(Address at);
  // `is_clear` false: they failed, and something is still mapped there.
  Status map_claimed(const Run& run, Address at, uint64_t moved, bool* is_clear);
  Status fill(Address at, uint64_t bytes, uint64_t most, bool* is_clear);
  Status fill_chunk(Address at, uint64_t bytes);
  Status let_in(Address at, uint64_t bytes);
  bool take_away(Address start, uint64_t bytes);
  void change_access(int device, driver::Mapping::Access access);

  // Addresses that a chunk has vacated. Claimed, so that nothing else comes there.
  struct Vacated {
    Address at = 0;
    uint64_t bytes = 0;  // 0: no entry
    driver::Chunk chunk = driver::Chunk::kNone;
    order::Epoch until = 0;
    bool is_vacated = false;  // it is about to be
  };
  static constexpr size_t kMostVacated = 1024;
  template <typename Visit>
  void for_each_chunk(const Part& part, Visit&& visit) {
    for (Address at = part.start; at < part.start + part.bytes;) {
      const Page page = page_at(at);
      visit(at, page);
      at += page.pages * driver::kMappingStep;
    }
  }
  size_t vacated_count() const { return vacated_count_.load(std::memory_order_relaxed); }
  bool enlist(const Vacated& place);
  void drop_locked(Vacated& place) CUPOOL_REQUIRES(lock_);
  Status move_in(const Run& run, Address at, bool* is_clear);
  void end_move(const Run& run, bool is_made);
  template <typename Which>
  void unmap_where(Which&& which);
  void unmap_vacated_of(driver::Chunk chunk);

  driver::Mapping* const mapping_;
  upstream::Upstream& upstream_;
  const uint64_t device_bytes_;
  std::atomic<bool> serves_;
  Lock reserving_{Rank::kSpaceReserving};  // held across the driver's call, which waits for no work
  Lock lock_{Rank::kSpace};
  Addresses addresses_ CUPOOL_GUARDED_BY(lock_);
  std::vector<int> devices_ CUPOOL_GUARDED_BY(lock_);  // that have access; the context's own first
  std::array<Vacated, kMostVacated> vacated_ CUPOOL_GUARDED_BY(lock_);
  std::atomic<size_t> vacated_count_{0};
};

}  // namespace cupool::mapped
