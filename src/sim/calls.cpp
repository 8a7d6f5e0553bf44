// A slot for each thread, in a list that only grows; a slot whose thread has ended is taken by the next.
#include "sim/calls.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "base/clock.hpp"

namespace cupool::sim {

namespace detail {

struct CallSlot {
  std::atomic<bool> taken{true};
  std::atomic<const char*> name{nullptr};
  std::atomic<std::uint64_t> key{0};
  std::atomic<std::uint64_t> freed_in{0};
  std::atomic<CUcontext> current{nullptr};
  std::atomic<std::uint64_t> since_ns{0};
  std::atomic<int> tid{0};
  CallSlot* next = nullptr;
};

}  // namespace detail

namespace {

using detail::CallSlot;

std::atomic<CallSlot*> first_slot{nullptr};

CallSlot* take_slot() {
  for (CallSlot* slot = first_slot.load(); slot != nullptr; slot = slot->next) {
    if (!slot->taken.exchange(true)) return slot;
  }
  auto* const fresh = new CallSlot;
  fresh->next = first_slot.load();
  while (!first_slot.compare_exchange_weak(fresh->next, fresh)) {
  }
  return fresh;
}

struct OwnSlot {
  CallSlot* slot = nullptr;
  ~OwnSlot() {
    if (slot == nullptr) return;
    slot->name.store(nullptr);
    slot->taken.store(false);
    slot = nullptr;
  }
};
thread_local OwnSlot own;

}  // namespace

void publish_call(const ObservedCall& call) {
  if (own.slot == nullptr) {
    own.slot = take_slot();
    own.slot->tid.store(static_cast<int>(syscall(SYS_gettid)));
  }
  CallSlot& slot = *own.slot;
  slot.key.store(call.key);
  slot.freed_in.store(call.freed_in);
  slot.current.store(call.current);
  slot.since_ns.store(call.name != nullptr ? now_ns() : 0);
  slot.name.store(call.name);
}

namespace detail {

const CallSlot* next_call(const CallSlot* after, CallUnderWay& found) {
  const CallSlot* const slot = after != nullptr ? after->next : first_slot.load();
  if (slot == nullptr) return nullptr;
  found.call = ObservedCall{};
  found.call.name = slot->name.load();
  found.call.key = slot->key.load();
  found.call.freed_in = slot->freed_in.load();
  found.call.current = slot->current.load();
  found.since_ns = slot->since_ns.load();
  found.tid = slot->tid.load();
  return slot;
}

}  // namespace detail
}  // namespace cupool::sim
