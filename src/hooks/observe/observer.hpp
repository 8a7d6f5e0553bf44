// The one place that is told what the program does. Each entry point feeds it once a call, with the result;
// it passes that on to the listeners that are on (listeners.def). What a listener wants sets reasons for the
// slow path, and the fast paths know nothing else of it: with no listener on, they do not change.
//
// Calls that the driver or this library makes on the way are not the program's and are not told; neither is
// what a listener does, for listeners run under the re-entry guard. Holds no lock: a listener may be told by
// several threads at once, and once more after it was switched off.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/preserve_errno.hpp"
#include "base/reentry.hpp"
#include "hooks/observe/payloads.hpp"
#include "hooks/state/slow_reasons.hpp"

namespace cupool::hooks::observe {

// The handlers of one listener; null: it does not want that event.
struct Listener {
  // Whether the options ask for it; called once, at the first use of CUDA.
  bool (*is_wanted)();
#define CUPOOL_EVENT(name, Payload, reason) void (*name)(const Payload&) = nullptr;
#include "hooks/observe/events.def"
};

class Observer {
 public:
  using SetSlow = void (*)(SlowReason reason, bool holds);

  constexpr Observer(std::span<const Listener* const> listeners, SetSlow set_slow)
      : listeners_(listeners), set_slow_(set_slow) {}

  // Switches on the listeners that the options ask for.
  void start() {
    for (const Listener* const one : listeners_) listen(*one, one->is_wanted());
  }

  void listen(const Listener& which, bool on) {
    uint32_t bit = 0;
    for (size_t i = 0; i < listeners_.size(); ++i) bit |= listeners_[i] == &which ? 1u << i : 0;
    uint32_t now = on ? on_.fetch_or(bit) | bit : on_.fetch_and(~bit) & ~bit;
    // Another thread may switch one at the same time: whoever sets the reasons last has seen both.
    for (uint32_t seen = now;; now = seen) {
      set_reasons(now);
      if ((seen = on_.load()) == now) break;
    }
  }

#define CUPOOL_EVENT(name, Payload, reason) \
  void name(const Payload& what) const { tell(&Listener::name, what); }
#include "hooks/observe/events.def"

 private:
  template <typename Payload>
  void tell(void (*Listener::*handler)(const Payload&), const Payload& what) const {
    if (Reentry::inside()) return;
    const Reentry guard;
    const PreserveErrno preserve;
    const uint32_t on = on_.load(std::memory_order_acquire);
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if ((on & 1u << i) != 0 && listeners_[i]->*handler != nullptr) (listeners_[i]->*handler)(what);
    }
  }

  void set_reasons(uint32_t on) const {
    uint32_t all = 0;
    uint32_t wanted = 0;
    for (size_t i = 0; i < listeners_.size(); ++i) {
      const Listener& one = *listeners_[i];
#define CUPOOL_EVENT(name, Payload, reason)         \
  all |= static_cast<uint32_t>(SlowReason::reason); \
  if ((on & 1u << i) != 0 && one.name != nullptr) wanted |= static_cast<uint32_t>(SlowReason::reason);
#include "hooks/observe/events.def"
    }
    for (uint32_t bit = 1; bit != 0; bit <<= 1) {
      if ((all & bit) != 0) set_slow_(static_cast<SlowReason>(bit), (wanted & bit) != 0);
    }
  }

  const std::span<const Listener* const> listeners_;
  const SetSlow set_slow_;
  std::atomic<uint32_t> on_{0};
};

}  // namespace cupool::hooks::observe

namespace cupool::hooks {

namespace detail {
[[gnu::visibility("hidden")]] extern constinit observe::Observer observer;
}
inline constexpr observe::Observer& observer = detail::observer;

}  // namespace cupool::hooks
