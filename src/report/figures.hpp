// The figures of this process for its neighbours: one entry for each device in use, read from the statistics.
// Owns the devices' UUIDs and sizes, which only the layers above can ask the driver for.
#pragma once

#include <cstddef>

#include "neighbours/registry.hpp"
#include "stats/counters.hpp"

namespace cupool::report {

// The device has this UUID and so many bytes. Before the first call its figures carry zeros.
void note_device(int ordinal, const neighbours::DeviceId& id, uint64_t capacity);

// At most `most` devices; returns how many. Async-signal-safe with Reading::kNoLock.
size_t read_figures(stats::Reading reading, neighbours::Figures* out, size_t most);
// The same with the name and pid of this process.
size_t read_entries(stats::Reading reading, neighbours::Entry* out, size_t most);
void make_entries(const neighbours::Figures* figures, size_t count, neighbours::Entry* out);

}  // namespace cupool::report
