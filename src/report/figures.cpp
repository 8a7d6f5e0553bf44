// See figures.hpp.
#include "report/figures.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/after_fork.hpp"
#include "config/options.hpp"
#include "config/process.hpp"
#include "report/facts.hpp"

namespace cupool::report {
namespace {

// Two words, so that a reader needs no lock; a UUID never changes.
struct Known {
  std::atomic<uint64_t> words[2];
  std::atomic<uint64_t> capacity;
};
static_assert(sizeof(neighbours::DeviceId) == sizeof(uint64_t[2]));
constinit Known known[stats::kMostDevices];

neighbours::DeviceId device_id(int ordinal) {
  uint64_t words[2];
  for (int i = 0; i < 2; ++i) words[i] = known[ordinal].words[i].load(std::memory_order_relaxed);
  neighbours::DeviceId id;
  memcpy(&id, words, sizeof id);
  return id;
}

// The most that was told to have been reused.
constinit std::atomic<uint64_t> told[stats::kMostDevices]{};
// A fork child begins at nothing, as all its counts do.
CUPOOL_AFTER_FORK(figures_after_fork, [] {
  for (auto& word : told) word.store(0, std::memory_order_relaxed);
});

// A difference of two counts that are read one after the other: never above the truth, but it may fall.
uint64_t not_less(int device, uint64_t reused) {
  uint64_t before = told[device].load(std::memory_order_relaxed);
  while (before < reused && !told[device].compare_exchange_weak(before, reused, std::memory_order_relaxed)) {
  }
  return std::max(before, reused);
}

}  // namespace

void note_device(int ordinal, const neighbours::DeviceId& id, uint64_t capacity) {
  if (ordinal < 0 || ordinal >= stats::kMostDevices) return;
  uint64_t words[2];
  memcpy(words, &id, sizeof id);
  for (int i = 0; i < 2; ++i) known[ordinal].words[i].store(words[i], std::memory_order_relaxed);
  known[ordinal].capacity.store(capacity, std::memory_order_relaxed);
}

size_t read_figures(stats::Reading reading, neighbours::Figures* out, size_t most) {
  size_t count = 0;
  for (int i = 0; i < stats::kMostDevices && count < most; ++i) {
    if (!stats::device(i).is_used()) continue;
    const stats::DeviceSums sums = read_device(i, reading);
    const Size limit = config::options().limit;
    const uint64_t capacity = known[i].capacity.load(std::memory_order_relaxed);
    out[count++] = {device_id(i),
                    i,
                    sums.live_bytes,
                    sums.cached_bytes,
                    sums.reserved_bytes,
                    sums.peak_reserved_bytes,
                    not_less(i, sums.reused),
                    sums.first_uses,
                    sums.waits_avoided,
                    sums.host_reserved_bytes,
                    capacity,
                    limit.percent && capacity == 0 ? kUnlimited : limit.of(capacity)};
  }
  return count;
}

size_t read_entries(stats::Reading reading, neighbours::Entry* out, size_t most) {
  neighbours::Figures figures[neighbours::Registry::kMostDevices];
  const size_t count = read_figures(reading, figures, std::min(most, std::size(figures)));
  make_entries(figures, count, out);
  return count;
}

void make_entries(const neighbours::Figures* figures, size_t count, neighbours::Entry* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = {};
    out[i].pid = getpid();
    out[i].same_namespace = true;
    out[i].stamp = neighbours::registry_time();
    strncpy(out[i].program, config::program(), sizeof out[i].program - 1);
    out[i].figures = figures[i];
  }
}

}  // namespace cupool::report
