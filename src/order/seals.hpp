// The closed epochs of one context that are not known to be over: the number of each, the lanes noted in it,
// and the event that tells when its work is done. Mechanism only: what a seal means is decided in
// timeline.cpp, under whose lock every function here runs. Takes no host memory; events are created once and
// used again, and a destroyed context's events die with it.
#pragma once

#include <array>
#include <cstddef>

#include "driver/driver.hpp"
#include "order/lane.hpp"

namespace cupool::order {

struct Seal {
  Epoch epoch = 0;
  Lane lanes = Lane::kNone;
  driver::Event event = nullptr;  // null: a wait of the program stands for it, or one that failed
  bool in_free = false;           // recorded inside a free: work may be made to wait for it
};

class Seals {
 public:
  // How many are pending at most, but for one that is just being made.
  static constexpr size_t kMost = 64;

  // An epoch is closed; nothing is recorded yet. If there are too many, one of the newest goes first: the one
  // after it covers all it covers, and takes over its lanes.
  void push(Epoch epoch, Lane lanes);
  Seal& newest() { return pending_[count_ - 1]; }

  // The first seal that work may be made to wait for and that covers `epoch`; null: there is none.
  const Seal* covering(Epoch epoch) const;
  // The lanes of all pending epochs up to one, or of all.
  Lane lanes_up_to(Epoch epoch) const;
  Lane lanes() const { return lanes_up_to(~Epoch{0}); }
  // A lane becomes one that equals no other.
  void rename(Lane lane);

  // The highest epoch whose event is done, or 0. `failed` is set if the driver refuses to answer.
  Epoch newest_done(driver::Driver& driver, bool* failed) const;
  // Forgets all up to `epoch`: their work is over.
  void retire(Epoch epoch);
  // Takes out one that proved nothing. Its lanes pass to the next newer one; if there is none, they are
  // returned.
  Lane abandon(Epoch epoch);
  void forget_all();

  // An event to record, or null; and back.
  driver::Event take_event(driver::Driver& driver, driver::Context context);
  void give_event(driver::Event event);

  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }

 private:
  void make_room();
  void remove(size_t index);

  std::array<Seal, kMost + 1> pending_{};  // oldest first
  size_t count_ = 0;
  std::array<driver::Event, kMost + 2> idle_{};
  size_t idle_count_ = 0;
};

}  // namespace cupool::order
