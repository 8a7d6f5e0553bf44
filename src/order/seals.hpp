// The seals that are not known to be done: which epoch each closes, which lanes were noted in it, and one
// event per context that tells when. Mechanism only: what a seal means is decided in timeline.cpp, under
// whose lock every function here runs. Events are created once and used again; a destroyed context's events
// die with it.
#pragma once

#include <cstddef>
#include <vector>

#include "driver/driver.hpp"
#include "order/lane.hpp"

namespace cupool::order {

class Seals {
 public:
  constexpr explicit Seals(driver::Driver* driver) : driver_(driver) {}

  void join(driver::Context context);
  void leave(driver::Context context);
  size_t contexts() const { return contexts_.size(); }

  // A seal without events yet. When there are too many, the newest one gives its lanes to this one, which
  // proves it too.
  void push(Epoch epoch, Lane lanes);
  // Records the newest seal's events, in every context. On failure that seal stays without proof: abandon()
  // it.
  bool record_newest();
  // Makes all later work of every context run after the newest seal's events.
  bool order_after_newest();
  // The highest epoch whose events are all done, or 0.
  Epoch newest_done();

  // Forgets all seals up to `epoch`: their work is over.
  void retire(Epoch epoch);
  // Takes back one seal that proved nothing and returns its lanes; kNone if it is gone already.
  Lane abandon(Epoch epoch);
  // The seals keep their events, but their lanes no longer matter: a barrier ordered them.
  void forget_lanes();
  Lane lanes() const;

  driver::Driver* driver() const { return driver_; }
  size_t size() const { return pending_.size(); }
  bool empty() const { return pending_.empty(); }
  std::vector<driver::Context> context_list() const;
  void forget_all();

 private:
  static constexpr size_t kMost = 64;

  struct Mark {
    driver::Context context;
    driver::Event event;
  };
  struct Seal {
    Epoch epoch;
    Lane lanes;
    std::vector<Mark> marks;  // empty: a wait of the application stands for it
  };
  struct Member {
    driver::Context context;
    std::vector<driver::Event> idle;
  };

  driver::Event take_event(Member& member);
  void recycle(Seal& seal);

  driver::Driver* driver_;
  std::vector<Member> contexts_;
  std::vector<Seal> pending_;  // oldest first; few, so erasing at the front is cheap
};

}  // namespace cupool::order
