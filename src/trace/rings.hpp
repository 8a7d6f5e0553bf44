// The rings of all threads: a list that only grows, and what threads without a ring have lost. No lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "trace/ring.hpp"

namespace cupool::trace {

extern constinit std::atomic<Ring*> rings;

// How many events threads that got no ring could not record since the last call.
uint64_t take_lost_without_ring();

void forget_rings_after_fork();

// When events must have been gathered; a thread that records later does so itself.
extern constinit std::atomic<uint64_t> gathering_due;
inline constexpr uint64_t kMostUngathered = 60'000'000;  // nanoseconds
inline constexpr uint64_t kBetweenLooks = 10'000'000;

}  // namespace cupool::trace
