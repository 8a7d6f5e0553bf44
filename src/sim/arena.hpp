// One device's memory: a reserved span of addresses that programs see (and cannot touch: they are device
// addresses) and a second view of the same bytes, backed by one memory file, through which copies and kernels
// work. The file makes export to another process a matter of naming it. Counted in 2 MiB granules; pages are
// real only once written. Guarded by the state mutex. Must not know of contexts or allocations.
// An arena without memory of its own is a span of addresses for reservations, where anything can be mapped.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace cupool::sim {

constexpr std::uint64_t kGranule = 2ull << 20;
inline std::uint64_t granules_for(std::uint64_t bytes) { return (bytes + kGranule - 1) / kGranule; }

class Arena {
 public:
  explicit Arena(std::uint64_t capacity_bytes);
  // Addresses alone, without a byte of its own: `bytes` of them, or as many as there can be.
  static std::unique_ptr<Arena> of_addresses(std::uint64_t bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Physical memory with its own addresses; 0 when the capacity does not allow it.
  CUdeviceptr take(std::uint64_t granules, bool keep_bytes);
  void give(CUdeviceptr base, std::uint64_t granules, bool keep_bytes);

  // Addresses alone: nothing behind them until something is mapped there.
  CUdeviceptr reserve(std::uint64_t granules, std::uint64_t alignment);
  void unreserve(CUdeviceptr base, std::uint64_t granules);

  // Physical memory alone (cuMemCreate, arrays), named by its offset in the file.
  std::uint64_t take_physical(std::uint64_t granules);
  void give_physical(std::uint64_t offset, std::uint64_t granules);

  // Shows `bytes` of `fd` from `offset` at reserved addresses; unmap takes the view away again.
  bool map(CUdeviceptr at, std::uint64_t bytes, int fd, std::uint64_t offset);
  void unmap(CUdeviceptr at, std::uint64_t bytes);
  // The same bytes at the addresses themselves, so that the host can touch them too (PROT_*).
  bool show_to_host(CUdeviceptr at, std::uint64_t bytes, int protection, int fd, std::uint64_t offset);
  void hide_from_host(CUdeviceptr at, std::uint64_t bytes);

  bool contains(CUdeviceptr p) const { return p >= base_ && p < base_ + span_; }
  bool mapped(CUdeviceptr p, std::uint64_t bytes) const;
  std::uint8_t* bytes_at(CUdeviceptr p) const { return view_ + (p - base_); }
  std::uint64_t offset_of(CUdeviceptr p) const { return p - base_; }
  std::uint8_t* physical_bytes(std::uint64_t offset) const { return view_ + offset; }

  int fd() const { return fd_; }
  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t used() const { return used_; }

 private:
  Arena() = default;
  void reserve_span(void* place, std::uint64_t bytes);
  CUdeviceptr take_addresses(std::uint64_t granules, std::uint64_t alignment);
  void give_addresses(CUdeviceptr base, std::uint64_t granules);
  void mark(CUdeviceptr at, std::uint64_t granules, bool present);
  void punch(std::uint64_t offset, std::uint64_t bytes);

  std::uint64_t capacity_ = 0;
  std::uint64_t used_ = 0;
  std::uint64_t span_ = 0;
  int fd_ = -1;  // of an arena of addresses: none
  CUdeviceptr base_ = 0;
  std::uint8_t* view_ = nullptr;
  std::map<std::uint64_t, std::uint64_t> free_;  // first granule -> count
  std::vector<std::uint8_t> present_;
};

}  // namespace cupool::sim
