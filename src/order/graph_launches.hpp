// Keeps our waits for events apart from the program's graph launches into the same stream. The driver loses a
// wait that one thread makes while another launches or uploads a graph there (seen on an H200,
// docs/order.md); what waits for an old life's work would then start at once. Process-wide, under a lock of
// its own that is held for a few instructions. Nobody holds a timeline's lock while waiting here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/lock.hpp"
#include "driver/driver.hpp"
#include "order/lane.hpp"

namespace cupool::order {

class GraphLaunches {
 public:
  // A stream among those of all contexts: default streams have the same lane in each.
  struct Place {
    Place() = default;
    Place(Lane stream, driver::Context of) : lane(stream), context(is_default(stream) ? of : nullptr) {}
    bool operator==(const Place&) const = default;

    Lane lane = Lane::kNone;
    driver::Context context = nullptr;
  };

  // Around the driver's call; any number at once.
  class Launch {
   public:
    explicit Launch(Place place) : place_(place) { begin_launch(place); }
    ~Launch() { end(place_, &Entry::launches); }
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

   private:
    const Place place_;
  };

  // While this exists, no graph is being launched there. It waits for a launch under way: the driver would
  // have let the caller's own submission to that stream wait for it as well.
  class Wait {
   public:
    explicit Wait(Place place) : place_(place) { begin_wait(place); }
    ~Wait() { end(place_, &Entry::waits); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    const Place place_;
  };

  static void forget_after_fork();

 private:
  struct Entry {
    Place place;
    uint32_t launches = 0;  // under way
    uint32_t waits = 0;     // under way, or about to be: no launch begins
  };
  // Streams to which threads are submitting graphs or waits at one moment.
  static constexpr size_t kMost = 256;

  // Handles are addresses, default streams are not.
  static bool is_default(Lane lane) { return (static_cast<uint64_t>(lane) & 7) != 0; }

  static void begin_launch(Place place);
  static void begin_wait(Place place);
  static void end(Place place, uint32_t Entry::*count);
  static Entry* find_locked(Place place) CUPOOL_REQUIRES(lock_);
  static Entry* find_or_add_locked(Place place) CUPOOL_REQUIRES(lock_);

  static inline constinit Lock lock_{};
  static std::array<Entry, kMost> entries_ CUPOOL_GUARDED_BY(lock_);
  static inline constinit size_t used_ CUPOOL_GUARDED_BY(lock_) = 0;  // no entry in use lies beyond
};

}  // namespace cupool::order
