// The driver's stream-ordered pools for unit tests: blocks are numbers, and the test hears of every call.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "driver/native_driver.hpp"

namespace cupool::test {

// Pools are numbers, blocks are remembered with theirs; nothing runs.
class FakeNativeDriver final : public driver::NativeDriver {
 public:
  std::map<driver::Address, driver::MemoryPool> blocks;
  uint64_t pools = 0, destroyed = 0;
  uint64_t trims = 0, synchronisations = 0;
  uint64_t idle_bytes = 0;  // in each pool
  uint64_t strays = 0;      // calls that name a pool that was destroyed
  std::function<void()> on_free = [] {};
  std::function<void()> on_question = [] {};
  std::function<driver::Status()> on_allocate = [] { return driver::kSuccess; };

  bool has_native_pools() override { return true; }
  driver::Status create_pool(int, const driver::NativeSettings&, driver::MemoryPool* out) override {
    *out = reinterpret_cast<driver::MemoryPool>(++pools);
    return driver::kSuccess;
  }
  driver::Status read_settings(driver::MemoryPool, driver::NativeSettings*) override {
    return driver::kNotSupported;
  }
  driver::Status destroy_pool(driver::MemoryPool pool) override {
    ++destroyed;
    gone_.insert(pool);
    return driver::kSuccess;
  }
  driver::Status create_stream(driver::Stream* out) override {
    *out = reinterpret_cast<driver::Stream>(++streams_);
    return driver::kSuccess;
  }
  driver::Status synchronize_stream(driver::Stream) override {
    ++synchronisations;
    return driver::kSuccess;
  }
  driver::Status allocate_on(driver::MemoryPool pool, driver::Stream, size_t, driver::Address* out) override {
    if (const driver::Status status = on_allocate(); status != driver::kSuccess) return status;
    *out = next_ += 0x1000;
    blocks[*out] = pool;
    return driver::kSuccess;
  }
  driver::Status free_on(driver::Stream, driver::Address start) override {
    on_free();
    return blocks.erase(start) != 0 ? driver::kSuccess : driver::kInvalidValue;
  }
  driver::Status record_on(driver::Stream, driver::Event) override { return driver::kSuccess; }
  driver::Status synchronize_event(driver::Event) override { return driver::kSuccess; }
  driver::MemoryPool pool_of(driver::Address address) override {
    const auto found = blocks.find(address);
    return found == blocks.end() ? nullptr : found->second;
  }
  driver::Status trim(driver::MemoryPool pool, uint64_t) override {
    ++trims;
    strays += gone_.count(pool);
    return driver::kSuccess;
  }
  driver::Status usage(driver::MemoryPool pool, driver::NativeUsage* out) override {
    strays += gone_.count(pool);
    out->reserved = idle_bytes;
    on_question();
    return driver::kSuccess;
  }
  driver::Status reset_peaks(driver::MemoryPool pool) override {
    strays += gone_.count(pool);
    on_question();
    return driver::kSuccess;
  }
  driver::Status export_pool(driver::MemoryPool, int*) override { return driver::kNotSupported; }
  driver::Status import_pool(int, driver::MemoryPool*) override { return driver::kNotSupported; }
  driver::Status export_pointer(driver::Address, void*) override { return driver::kNotSupported; }
  driver::Status import_pointer(driver::MemoryPool, const void*, driver::Address*) override {
    return driver::kNotSupported;
  }

 private:
  std::set<driver::MemoryPool> gone_;
  uintptr_t streams_ = 0;
  driver::Address next_ = 0x7e0000000000;
};

}  // namespace cupool::test
