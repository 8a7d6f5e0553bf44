// Call stacks for a trace (CUPOOL_STACKS): taken of the calling thread, each stored once, named by a number.
// Taken with no lock of ours held, never inside the loader (loading.hpp), and not by a thread that is just
// taking one. Native frames come from libunwind, opened once at the beginning, or, where the system has none,
// from glibc's walker, which takes longer. Where an address has had two meanings libunwind may remember the
// older one and go astray; from then on glibc's walker takes over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trace/modules.hpp"
#include "trace/word_table.hpp"

namespace cupool::trace {

struct StackSettings {
  size_t depth = 0;        // frames of a stack, at most kMostDepth; 0: no stacks
  uint64_t least = 0;      // smaller allocations have none
  uint64_t sample = 0;     // not 0: allocations are drawn, one in so many bytes
  uint64_t own_begin = 0;  // frames of the library itself are left out
  uint64_t own_end = 0;
};
inline constexpr size_t kMostDepth = 100;

// False: the system has no libunwind, and each stack takes longer. May load libraries.
bool begin_stacks(const StackSettings& settings);
bool takes_stacks();
// The number of the calling thread's stack; 0: there is none.
uint32_t take_stack();
// The same for an allocation, or for the free of one, of that size, if it is to have one.
uint32_t take_stack_of_allocation(uint64_t bytes);
uint32_t take_stack_of_free(uint64_t bytes);
uint32_t take_stack_of_wait(bool is_long);
// The period by which allocations are drawn; 0: all are.
uint64_t sample_period();

// What the stacks consist of.
struct StackTables {
  // A row is how often addresses had been reused, then the frames, innermost first: a return address, or
  // kIsPlace and the number of a place. Its note is the map of its time.
  WordTable stacks{18};
  WordTable places{17};  // the texts of function and file, and the line
  WordTable texts{16};   // how many bytes, and these
  Modules modules;
};
extern constinit StackTables stack_tables;

// A row of texts.
inline std::string_view text_of(const WordTable::Found& found) {
  return {reinterpret_cast<const char*>(found.words.data() + 1), found.words[0]};
}

}  // namespace cupool::trace
