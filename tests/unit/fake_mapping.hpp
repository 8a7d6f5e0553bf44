// The driver's virtual memory management for unit tests: chunks and addresses are numbers. What is mapped
// counts as memory that the fake driver has given out. It fails the test where a real driver would refuse;
// not by an exception, which must not pass through the pool.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "driver/mapping.hpp"
#include "fake_driver.hpp"

namespace cupool::test {

class FakeMapping final : public driver::Mapping {
 public:
  struct Mapped {
    uint64_t bytes;
    driver::Chunk chunk;
    std::set<int> devices;
  };

  explicit FakeMapping(FakeDriver& driver) : driver_(driver) {}

  bool able = true;
  uint64_t most_reserved = uint64_t{1} << 46;
  driver::Status fail_create = driver::kSuccess;
  driver::Status fail_map = driver::kSuccess;
  driver::Status fail_unmap = driver::kSuccess;
  driver::Status fail_allow = driver::kSuccess;
  std::function<void(driver::Address, uint64_t)> on_unmap = [](driver::Address, uint64_t) {};
  std::function<void()> on_reserve = [] {};
  std::function<void()> on_create = [] {};
  std::function<void(Access)> on_allow = [](Access) {};
  std::function<void()> on_retain = [] {};
  driver::Status fail_export = driver::kSuccess;

  uint64_t creates = 0, releases = 0, maps = 0, unmaps = 0, allows = 0, reservations = 0, questions = 0;
  std::map<driver::Address, Mapped> mapped;
  std::map<driver::Address, uint64_t> reserved;

  bool can_map(int) override {
    const std::lock_guard<std::mutex> hold(lock_);
    ++questions;
    return able;
  }
  driver::Status reserve(uint64_t bytes, driver::Address* out) override {
    on_reserve();
    const std::lock_guard<std::mutex> hold(lock_);
    if (bytes > most_reserved || bytes % driver::kMappingStep != 0) return driver::kOutOfMemory;
    driver::Address at = kBase;
    for (const auto& [start, size] : reserved) {
      if (start - at >= bytes) break;
      at = start + size;
    }
    reserved[at] = bytes;
    ++reservations;
    *out = at;
    return driver::kSuccess;
  }
  driver::Status unreserve(driver::Address start, uint64_t bytes) override {
    const std::lock_guard<std::mutex> hold(lock_);
    const auto next = mapped.lower_bound(start);
    if (next != mapped.end() && next->first < start + bytes) return driver::kInvalidValue;
    const auto found = reserved.find(start);
    if (found == reserved.end() || found->second != bytes) return driver::kInvalidValue;
    reserved.erase(found);
    return driver::kSuccess;
  }

  driver::Status create(int, driver::Backing, uint64_t bytes, driver::Chunk* out) override {
    on_create();
    const std::lock_guard<std::mutex> hold(lock_);
    if (fail_create != driver::kSuccess) return fail_create;
    if (bytes % driver::kMappingStep != 0 || bytes == 0) return driver::kInvalidValue;
    if (!driver_.reserve(bytes)) return driver::kOutOfMemory;
    ++creates;
    *out = driver::Chunk{++chunks_};
    bytes_[*out] = bytes;
    return driver::kSuccess;
  }
  driver::Status release(driver::Chunk chunk) override {
    const std::lock_guard<std::mutex> hold(lock_);
    const auto found = bytes_.find(chunk);
    if (retained_[chunk] > 0) {
      --retained_[chunk];
      return driver::kSuccess;
    }
    if (found == bytes_.end() || !released_.insert(chunk).second) return driver::kInvalidValue;
    ++releases;
    give_if_unused(chunk);
    return driver::kSuccess;
  }

  driver::Status map(driver::Address at, uint64_t bytes, driver::Chunk chunk) override {
    const std::lock_guard<std::mutex> hold(lock_);
    if (fail_map != driver::kSuccess) return fail_map;
    if (bytes_.at(chunk) != bytes || at % driver::kMappingStep != 0)
      FAIL_CHECK("not all of a chunk is mapped");
    const auto next = mapped.lower_bound(at);
    const bool is_free =
        (next == mapped.end() || next->first >= at + bytes) &&
        (next == mapped.begin() || std::prev(next)->first + std::prev(next)->second.bytes <= at);
    if (!is_free) FAIL_CHECK("memory is mapped where some is mapped already");
    auto where = reserved.upper_bound(at);
    if (where == reserved.begin() || at + bytes > std::prev(where)->first + std::prev(where)->second)
      FAIL_CHECK("memory is mapped at addresses that are not reserved");
    mapped[at] = {bytes, chunk, {}};
    ++maps;
    return driver::kSuccess;
  }
  driver::Status unmap(driver::Address start, uint64_t bytes) override {
    on_unmap(start, bytes);
    const std::lock_guard<std::mutex> hold(lock_);
    if (fail_unmap != driver::kSuccess) return fail_unmap;
    for (driver::Address at = start; at < start + bytes;) {
      const auto found = mapped.find(at);
      if (found == mapped.end() || found->second.bytes > start + bytes - at) {
        FAIL_CHECK("what is unmapped is not made of whole chunks");
        return driver::kInvalidValue;
      }
      at += found->second.bytes;
      const driver::Chunk chunk = found->second.chunk;
      mapped.erase(found);
      give_if_unused(chunk);
    }
    ++unmaps;
    return driver::kSuccess;
  }
  driver::Status allow(driver::Address start, uint64_t bytes, const int* devices, size_t count,
                       Access access) override {
    on_allow(access);
    const std::lock_guard<std::mutex> hold(lock_);
    if (fail_allow != driver::kSuccess) return fail_allow;
    for (driver::Address at = start; at < start + bytes;) {
      const auto found = mapped.find(at);
      if (found == mapped.end()) return driver::kInvalidValue;
      for (size_t i = 0; i < count; ++i) {
        if (access == Access::kReadWrite) found->second.devices.insert(devices[i]);
        if (access == Access::kNone) found->second.devices.erase(devices[i]);
      }
      at += found->second.bytes;
    }
    ++allows;
    return driver::kSuccess;
  }

  driver::Status retain(driver::Address address, driver::Chunk* out) override {
    on_retain();
    const std::lock_guard<std::mutex> hold(lock_);
    auto found = mapped.upper_bound(address);
    if (found == mapped.begin()) return driver::kInvalidValue;
    --found;
    if (address - found->first >= found->second.bytes) return driver::kInvalidValue;
    *out = found->second.chunk;
    ++retained_[*out];
    return driver::kSuccess;
  }
  // A file that holds the number of the chunk.
  driver::Status export_chunk(driver::Chunk chunk, int* descriptor) override {
    if (fail_export != driver::kSuccess) return fail_export;
    *descriptor = memfd_create("chunk", 0);
    const auto number = static_cast<uint64_t>(chunk);
    return pwrite(*descriptor, &number, sizeof number, 0) == sizeof number ? driver::kSuccess
                                                                           : driver::kNotSupported;
  }
  driver::Status import_chunk(int, driver::Chunk*) override { return driver::kNotSupported; }

  // How often chunks are held besides by those who created them.
  int retained() {
    const std::lock_guard<std::mutex> hold(lock_);
    int all = 0;
    for (const auto& [chunk, count] : retained_) all += count;
    return all;
  }

  // Whether a device can access every byte from one address to another.
  bool has_access(driver::Address start, uint64_t bytes, int device) {
    const std::lock_guard<std::mutex> hold(lock_);
    for (driver::Address at = start; at < start + bytes;) {
      auto found = mapped.upper_bound(at);
      if (found == mapped.begin()) return false;
      --found;
      if (found->first + found->second.bytes <= at || found->second.devices.count(device) == 0) return false;
      at = found->first + found->second.bytes;
    }
    return true;
  }

 private:
  static constexpr driver::Address kBase = 0x600000000000;

  // The memory of a chunk goes back once it is released and nowhere mapped.
  void give_if_unused(driver::Chunk chunk) {
    const auto is_here = [chunk](const auto& one) { return one.second.chunk == chunk; };
    if (released_.count(chunk) == 0 || std::any_of(mapped.begin(), mapped.end(), is_here)) return;
    driver_.unreserve(bytes_.at(chunk));
    bytes_.erase(chunk);
    released_.erase(chunk);
  }

  FakeDriver& driver_;
  std::mutex lock_;
  uint64_t chunks_ = 0;
  std::map<driver::Chunk, uint64_t> bytes_;
  std::set<driver::Chunk> released_;
  std::map<driver::Chunk, int> retained_;  // beyond the one that create() gave
};

}  // namespace cupool::test
