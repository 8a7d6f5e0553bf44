// Start of the driver and what a fork leaves of it: nothing. The child of a process that called cuInit gets
// NOT_INITIALIZED for ever, as with the real driver. The state is never destroyed.
#include "sim/state.hpp"

#include <pthread.h>

#include <algorithm>

#include "sim/arrays.hpp"
#include "sim/graphs.hpp"
#include "sim/lives.hpp"
#include "sim/mapped_memory.hpp"
#include "sim/memory_pools.hpp"
#include "sim/options.hpp"
#include "sim/report.hpp"

namespace cupool::sim {

std::atomic<Life> driver_life{Life::kBefore};
thread_local ThreadState thread_state{};

namespace {

constexpr std::uint64_t kLeastHostMemory = 4ull << 30;
// Addresses are plenty: a program may reserve many times what there is to map.
constexpr std::uint64_t kReservationsPerMemory = 16;
constexpr std::uint64_t kLeastReservations = 64ull << 30;
constexpr std::uint64_t kMostReservations = 16ull << 40;

std::mutex start_mutex;
State* the_state = nullptr;
std::atomic<std::uint64_t> next_thread{1};

void forget_after_fork() {
  if (driver_life.load() == Life::kRunning) driver_life.store(Life::kForked);
}

}  // namespace

State::State() {
  const Options& o = options();
  random.seed(o.seed * 0x9e3779b97f4a7c15ull + 1);
  // Some seeds leave everything queued until somebody waits, some run nearly at once.
  static constexpr unsigned kEagerness[] = {2, 10, 30, 50, 70, 95};
  eagerness = kEagerness[random() % std::size(kEagerness)];
  for (int d = 0; d < o.devices; ++d) {
    Device device;
    device.ordinal = d;
    devices.push_back(device);
    arenas.push_back(std::make_unique<Arena>(o.memory));
  }
}

Arena* State::arena_of(CUdeviceptr p) {
  for (const auto& one : arenas) {
    if (one->contains(p)) return one.get();
  }
  return reservations != nullptr && reservations->contains(p) ? reservations.get() : nullptr;
}

Arena& State::chunk_arena(int device) {
  if (device != CU_DEVICE_CPU) return arena(device);
  if (host_chunks == nullptr)
    host_chunks = std::make_unique<Arena>(std::max(options().memory, kLeastHostMemory));
  return *host_chunks;
}

Arena& State::reservation_arena() {
  if (reservations == nullptr) {
    const std::uint64_t several = options().memory * devices.size() * kReservationsPerMemory;
    reservations = Arena::of_addresses(std::clamp(several, kLeastReservations, kMostReservations));
  }
  return *reservations;
}

std::shared_ptr<Context> State::context_by_id(std::uint64_t id) {
  std::shared_ptr<Context> found;
  contexts.each([&](const std::shared_ptr<Context>& context) {
    if (context->id == id && context->active) found = context;
  });
  return found;
}

std::uint64_t State::used_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& one : arenas) sum += one->used();
  return sum;
}

void State::note_usage() {
  counters.peak_bytes = std::max(counters.peak_bytes, used_bytes());
  if (host_chunks != nullptr)
    counters.peak_host_chunk_bytes = std::max(counters.peak_host_chunk_bytes, host_chunks->used());
}

State& state() { return *the_state; }

bool start_driver() {
  std::lock_guard<std::mutex> lock(start_mutex);
  switch (driver_life.load()) {
    case Life::kRunning:
      return true;
    case Life::kForked:
      return false;
    case Life::kBefore:
      break;
  }
  the_state = new State();
  pthread_atfork(nullptr, nullptr, forget_after_fork);
  look_for_observer();
  start_report();
  driver_life.store(Life::kRunning);
  return true;
}

std::uint64_t thread_id() {
  if (thread_state.id == 0) thread_state.id = next_thread.fetch_add(1);
  return thread_state.id;
}

}  // namespace cupool::sim
