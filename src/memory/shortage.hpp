// What is tried when a device has no memory left: the ladder that the head of shortage.cpp describes rung by
// rung. No lock.
#pragma once

#include <atomic>

#include "mapped/spill.hpp"
#include "memory/allocators.hpp"
#include "memory/idle_memory.hpp"

namespace cupool::memory {

class ShortageLadder {
 public:
  constexpr ShortageLadder(driver::Driver* driver, driver::Source* device_memory, Allocators& allocators,
                           IdleMemory& idle, order::Timelines& order, context::InFlight& in_flight)
      : driver_(driver),
        device_memory_(device_memory),
        allocators_(allocators),
        idle_(idle),
        order_(order),
        in_flight_(in_flight) {}

  // An allocation for which `first` is out of memory, although it has released what it could of its own.
  Status allocate(Allocator& first, driver::Source& source, driver::Context context, uint64_t bytes,
                  Address* out);
  // Before any allocation, if blocks may have spilled. False: it goes its usual way.
  bool allocate_at_once(driver::Context context, uint64_t bytes, Address* out);
  // The driver has refused a call of the program's because a device is out of memory: releases what is idle
  // there, as far as the effort goes; `context` is where the call was made. With kAll it also waits for other
  // threads that release, and asks other processes. False: nothing has changed, so the driver would refuse
  // again.
  bool release_for_call(int device, allocator::Effort effort, driver::Context context, uint64_t bytes = 0);

  // The same during a capture, which a wait for work would end: waits a moment for threads that release
  // already, such as the background thread.
  bool wait_for_releases(int device);

  // How other processes are asked for idle memory of a device; true: some came back.
  void set_neighbours(bool (*ask)(int device, uint64_t bytes)) {
    ask_neighbours_.store(ask, std::memory_order_release);
  }
  // Where blocks go when a device has no memory left; null: nowhere.
  void use_spill(mapped::Spill* source) { spill_.store(source, std::memory_order_release); }
  mapped::Spill* spill() const { return spill_.load(std::memory_order_acquire); }

 private:
  Status allocate_spilled(driver::Context context, uint64_t bytes, int device, Address* out);
  bool count_spilled(int device, uint64_t bytes);
  bool is_above_limit(int device, uint64_t bytes);
  bool may_have(int device, uint64_t bytes);
  bool release_here(int device, driver::Context context, uint64_t bytes,
                    allocator::Effort effort = allocator::Effort::kAll);
  static bool catch_up_on_returns();
  bool ask_others(int device, uint64_t bytes);

  driver::Driver* driver_;
  driver::Source* device_memory_;
  Allocators& allocators_;
  IdleMemory& idle_;
  order::Timelines& order_;
  context::InFlight& in_flight_;
  std::atomic<mapped::Spill*> spill_{nullptr};
  std::atomic<bool (*)(int, uint64_t)> ask_neighbours_{nullptr};
};

}  // namespace cupool::memory
