// See aids.hpp.
#include "hooks/aids.hpp"

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/call_stack.hpp"
#include "base/log.hpp"
#include "config/options.hpp"
#include "hooks/history.hpp"
#include "hooks/serving.hpp"

namespace cupool::hooks {

constinit std::atomic<bool> detail::watches{false};

namespace {

constexpr int kNone = -1;
constinit std::atomic<int> new_value{kNone};
constinit std::atomic<int> old_value{kNone};

History& history() {
  static History& only = *new History;
  return only;
}

// One "alloc:0xA5" or "free:90" of CUPOOL_FILL.
bool take_fill(std::string_view part) {
  const size_t colon = part.find(':');
  const std::string_view when = part.substr(0, colon);
  if (colon == std::string_view::npos || (when != "alloc" && when != "free")) return false;
  char text[16] = {};
  part.substr(colon + 1).copy(text, sizeof text - 1);
  char* end = nullptr;
  const unsigned long value = strtoul(text, &end, 0);
  if (end == text || *end != '\0' || value > 0xFF) return false;
  (when == "alloc" ? new_value : old_value).store(static_cast<int>(value), std::memory_order_relaxed);
  return true;
}

void take_fills(const char* option) {
  for (std::string_view rest(option); !rest.empty();) {
    const size_t comma = rest.find(',');
    if (!take_fill(rest.substr(0, comma))) {
      log::line("CUPOOL_FILL=%.64s is not like alloc:0xA5,free:0x5A; ignoring the part that is not", option);
    }
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
}

// On this thread's own default stream in the block's context. pre: all work so far comes first.
void write_over(driver::Context owner, CUdeviceptr block, size_t bytes, int value) {
  const order::Lane lane = lane_of_this_thread();
  if (!pools.order().before_submit(lane)) return;
  const Reentry guard;
  CUcontext other = nullptr;
  const bool push = current_context() != owner;
  if (push) cuda::real.cuCtxPushCurrent_v2(reinterpret_cast<CUcontext>(owner));
  cuda::real.cuMemsetD8Async(block, static_cast<unsigned char>(value), bytes, CU_STREAM_PER_THREAD);
  if (push) cuda::real.cuCtxPopCurrent_v2(&other);
  pools.order().after_submit(lane);
}

}  // namespace

void set_up_aids() {
  const config::Options& options = config::options();
  if (options.zero) new_value.store(0, std::memory_order_relaxed);
  take_fills(options.fill);
  const bool any = options.check || new_value.load(std::memory_order_relaxed) != kNone ||
                   old_value.load(std::memory_order_relaxed) != kNone;
  detail::watches.store(any, std::memory_order_relaxed);
}

void block_given(CUdeviceptr block, size_t bytes, First first) {
  if (config::options().check) history().note_allocation(block, bytes);
  const int value = new_value.load(std::memory_order_relaxed);
  // A capture that began between the write and the barrier after it would forbid the barrier, and the write
  // could come after the program's own.
  if (value == kNone || !pools.order().begin_call()) return;
  if (pools.order().barrier()) {
    write_over(current_context(), block, bytes, value);
    if (first == First::kHost) {
      pools.order().wait_for_all();
    } else {
      pools.order().barrier();
    }
  }
  pools.order().end_call();
}

void block_returns(CUdeviceptr block) {
  if (config::options().check) history().note_free(block);
  const int value = old_value.load(std::memory_order_relaxed);
  pool::Pool::Held held;
  if (value == kNone || !pools.find(block, &held) || held.start != block || !pools.order().barrier()) return;
  write_over(held.context, block, held.bytes, value);
}

void note_bad_free(CUdeviceptr pointer) {
  if (!config::options().check || Reentry::inside()) return;
  const Reentry guard;
  History::Life life;
  const bool known = history().find(pointer, &life);
  const auto address = static_cast<unsigned long long>(pointer);
  const auto inside = static_cast<unsigned long long>(pointer - life.start);
  const auto bytes = static_cast<unsigned long long>(life.bytes);
  const auto start = static_cast<unsigned long long>(life.start);
  if (!known) {
    log::line("free of %#llx, which was never allocated, or not through this library; freed here:", address);
  } else if (inside != 0) {
    log::line(
        "free of %#llx, an interior pointer: it is %llu bytes inside a block of %llu bytes at %#llx%s; freed "
        "here:",
        address, inside, bytes, start, life.freed ? " that was freed before" : "");
  } else {
    log::line("double free of %#llx, a block of %llu bytes; freed again here:", address, bytes);
  }
  void* frames[kDeepestStack];
  print_call_stack(frames, call_stack(frames, kDeepestStack));
  if (known && life.freed) {
    log::line("  freed before here:");
    print_call_stack(life.returned.frames.data(), life.returned.count);
  }
  if (known) {
    log::line("  allocated here:");
    print_call_stack(life.allocated.frames.data(), life.allocated.count);
  }
}

}  // namespace cupool::hooks
