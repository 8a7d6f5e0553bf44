// Descriptors of chunks. An importer in the same process is as good as one elsewhere. Under the state mutex.
#include "sim/chunk_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "base/format.hpp"
#include "sim/state.hpp"

namespace cupool::sim {
namespace {

// What the position of an open file says, from its low bits up: 63 are to be had.
struct Position {
  std::uint64_t offset;   // in granules, 25 bits
  std::uint64_t bytes;    // in granules, 25 bits
  std::uint64_t place;    // device + 1, 5 bits; 0: host memory
  std::uint64_t direct;   // usable for GPUDirect, 1 bit
  std::uint64_t inflate;  // usable for decompression, 1 bit
};

std::uint64_t packed(const Position& p) {
  return p.offset | p.bytes << 25 | p.place << 50 | p.direct << 55 | p.inflate << 56;
}

Position unpacked(std::uint64_t word) {
  constexpr std::uint64_t kGranules = (1ull << 25) - 1;
  return Position{word & kGranules, word >> 25 & kGranules, word >> 50 & 31, word >> 55 & 1, word >> 56 & 1};
}

bool is_memory_file(int descriptor) {
  char path[64];
  char target[64] = {};
  cupool::format_into(path, "/proc/self/fd/{}", descriptor);
  const ssize_t length = readlink(path, target, sizeof target - 1);
  constexpr char kName[] = "/memfd:cupool-sim";
  return length > 0 && std::strncmp(target, kName, sizeof kName - 1) == 0;
}

struct flock part(short kind, std::uint64_t offset, std::uint64_t bytes) {
  struct flock lock = {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(offset);
  lock.l_len = static_cast<off_t>(bytes);
  return lock;
}

}  // namespace

int export_chunk(const PhysicalMemory& memory) {
  char path[64];
  cupool::format_into(path, "/proc/self/fd/{}", memory.fd);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return -1;
  const auto& flags = memory.properties.allocFlags;
  const Position position{memory.offset / kGranule, memory.bytes / kGranule,
                          static_cast<std::uint64_t>(memory.device + 1), flags.gpuDirectRDMACapable != 0,
                          (flags.usage & CU_MEM_CREATE_USAGE_HW_DECOMPRESS) != 0};
  struct flock lock = part(F_RDLCK, memory.offset, memory.bytes);
  if (fcntl(file, F_OFD_SETLK, &lock) == 0 &&
      lseek(file, static_cast<off_t>(packed(position)), SEEK_SET) >= 0)
    return file;
  close(file);
  return -1;
}

bool import_chunk(int descriptor, PhysicalMemory& out) {
  const off_t word = is_memory_file(descriptor) ? lseek(descriptor, 0, SEEK_CUR) : -1;
  if (word < 0) return false;
  const Position position = unpacked(static_cast<std::uint64_t>(word));
  out.device = static_cast<int>(position.place) - 1;
  if (position.bytes == 0 || out.device >= static_cast<int>(state().devices.size())) return false;
  out.fd = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (out.fd < 0) return false;
  out.imported = true;
  out.offset = position.offset * kGranule;
  out.bytes = position.bytes * kGranule;
  CUmemAllocationProp& properties = out.properties;
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type =
      out.device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = out.device == CU_DEVICE_CPU ? 0 : out.device;
  properties.allocFlags.gpuDirectRDMACapable = position.direct != 0 ? 1 : 0;
  if (position.inflate != 0) properties.allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
  return true;
}

bool exported_elsewhere(int file, std::uint64_t offset, std::uint64_t bytes) {
  struct flock lock = part(F_WRLCK, offset, bytes);
  return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace cupool::sim
