// See stacks.hpp.
#include "trace/stacks.hpp"

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <iterator>
#include <span>

#include "base/after_fork.hpp"
#include "base/clock.hpp"
#include "base/system_library.hpp"
#include "trace/loading.hpp"
#include "trace/python.hpp"
#include "trace/records.hpp"

namespace cupool::trace {

constinit StackTables stack_tables;

namespace {

using Walk = int (*)(void**, int);

constinit StackSettings settings;  // written before `walker`
constinit std::atomic<Walk> walker{nullptr};
constinit thread_local bool is_taking = false;

// glibc does not free the loader's locks in a child: what another thread held at the fork stays held. So a
// child takes no stacks before it begins to use CUDA itself, which cannot be done without the loader.
CUPOOL_AFTER_FORK(stacks_after_fork, [] {
  walker.store(nullptr, std::memory_order_relaxed);
  is_taking = false;
  stack_tables.modules.forget_after_fork();
});

// Frames of ours that a walk begins with.
constexpr size_t kOwnFrames = 8;

// ---- Drawing.

// Exponentially distributed with mean 1, without libm: -ln(u), u = m * 2^-e.
double draw_exponential() {
  static constinit thread_local uint64_t state = 0;
  if (state == 0) state = (now_ns() ^ reinterpret_cast<uintptr_t>(&state) << 20) | 1;
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  const uint64_t bits = (state * 0x2545F4914F6CDD1Du) >> 11 | 1;  // odd, below 2^53
  const int zeros = std::countl_zero(bits);
  const double m = static_cast<double>(bits << zeros) / 9223372036854775808.0;  // of [1, 2)
  const double y = (m - 1) / (m + 1);
  const double square = y * y;
  double sum = 0;
  for (int k = 19; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  constexpr double kLn2 = 0.693147180559945309;
  // u = bits / 2^53, and bits = m * 2^(63 - zeros).
  return kLn2 * (zeros - 10) - 2 * y * sum;
}

bool draw(uint64_t bytes) {
  struct Left {
    double bytes;
    bool is_drawn;
  };
  static constinit thread_local Left left{0, false};
  const auto period = static_cast<double>(settings.sample);
  if (!left.is_drawn) left = {draw_exponential() * period, true};
  left.bytes -= static_cast<double>(bytes);
  if (left.bytes >= 0) return false;
  // Whatever lies behind the end of the allocation is as far away as ever.
  left.bytes = draw_exponential() * period;
  return true;
}

}  // namespace

bool begin_stacks(const StackSettings& wanted) {
  settings = wanted;
  settings.depth = std::min(wanted.depth, kMostDepth);
  if (settings.depth == 0) return true;
  void* const library = open_system_library("libunwind.so.8");
  void* const found = library == nullptr ? nullptr : dlsym(library, "unw_backtrace");
  const Walk walk = found == nullptr ? backtrace : reinterpret_cast<Walk>(found);
  // glibc's one loads a library when it is first called, and libunwind makes its tables.
  void* frames[4];
  backtrace(frames, 4);
  walk(frames, 4);
  stack_tables.modules.look();
  look_for_python();
  walker.store(walk, std::memory_order_release);
  return found != nullptr;
}

bool takes_stacks() { return walker.load(std::memory_order_acquire) != nullptr; }

uint32_t take_stack() {
  const Walk walk = walker.load(std::memory_order_acquire);
  if (walk == nullptr || is_taking || is_inside_loader()) return 0;
  is_taking = true;
  std::atomic_signal_fence(std::memory_order_acq_rel);
  Modules& modules = stack_tables.modules;
  const uint32_t map = has_loaded_lately(now_ns()) ? modules.look() : modules.map();
  const uint32_t reuses = modules.reuses();
  void* frames[kMostDepth + kOwnFrames];
  const auto most = static_cast<int>(settings.depth + kOwnFrames);
  const int got = reuses == 0 ? walk(frames, most) : backtrace(frames, most);
  const size_t count = got > 0 ? static_cast<size_t>(got) : 0;
  size_t first = 0;
  while (first < count) {
    const auto address = reinterpret_cast<uint64_t>(frames[first]);
    if (address < settings.own_begin || address >= settings.own_end) break;
    ++first;
  }
  uint64_t words[1 + 2 * kMostDepth];
  words[0] = reuses;
  const std::span<void* const> native(frames + first, std::min(count - first, settings.depth));
  const size_t used = 1 + merge_python(native, settings.depth, words + 1, std::size(words) - 1);
  const uint32_t number = used > 1 ? stack_tables.stacks.find_or_add({words, used}, map) : 0;
  std::atomic_signal_fence(std::memory_order_acq_rel);
  is_taking = false;
  return number;
}

uint32_t take_stack_of_allocation(uint64_t bytes) {
  if (settings.depth == 0 || bytes < settings.least) return 0;
  return settings.sample == 0 || draw(bytes) ? take_stack() : 0;
}

uint32_t take_stack_of_free(uint64_t bytes) {
  return settings.depth == 0 || settings.sample != 0 || bytes < settings.least ? 0 : take_stack();
}

uint32_t take_stack_of_wait(bool is_long) {
  return settings.depth == 0 || (settings.sample != 0 && !is_long) ? 0 : take_stack();
}

uint64_t sample_period() { return settings.sample; }

}  // namespace cupool::trace
