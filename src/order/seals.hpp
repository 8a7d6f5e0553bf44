// The closed epochs of one context that are not known to be complete: the number of each, the lanes noted in
// it, and the event that tells when its work is done. Mechanism only: timeline.cpp decides what a seal means,
// and every function here runs under its lock. Allocates no host memory and makes no events; they are
// recycled, and die with their context.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "driver/driver.hpp"
#include "order/lane.hpp"
#include "order/rules.hpp"

namespace cupool::order {

struct Seal {
  Epoch epoch = 0;
  Lane lanes = Lane::kNone;
  driver::Event event = nullptr;  // null: the seal is a wait of the program, or one that failed
  bool in_free = false;           // recorded inside a free: work may be made to wait for it
  bool is_kept = false;           // its event is not recorded anew
  bool is_counted = false;        // a free that it was made for counts as one that avoided a wait
  uint32_t undecided = 0;         // frees that avoided a wait if its work is not done by the next look
};

class Seals {
 public:
  // The most that are pending, besides one being made. A program can be ahead of the device by about twice as
  // many pieces of work a stream.
  static constexpr size_t kMost = 511;

  // Adds a closed epoch; nothing is recorded yet. If the list is full, a good part of the seals is dropped,
  // all along: each one's successor covers the same work and takes over its lanes.
  void push(Epoch epoch, Lane lanes);
  Seal& newest() { return at(count_ - 1); }

  // The first seal that work may be made to wait for and that covers `epoch`; null: there is none.
  Seal* covering(Epoch epoch);
  // While waits for its event are made without the lock, that is not recorded anew: they would be waits for
  // newer work.
  void pin(Seal& seal);
  void unpin(driver::Event event);
  // The lanes of all pending epochs up to one, or of all.
  Lane lanes_up_to(Epoch epoch) const;
  Lane lanes() const { return kAllLanes ? lanes_ : lanes_up_to(~Epoch{0}); }
  // Replaces a lane by one that equals no other.
  void rename(Lane lane);

  // The highest epoch whose event is done, or 0. `failed` is set if the driver refuses to answer.
  Epoch newest_done(driver::Driver& driver, bool* failed);
  // After that: of the frees that were undecided, how many are known to have avoided a wait, because the
  // driver answered that the work was not done.
  uint64_t take_decided();
  // How often that has asked the driver, in all.
  uint64_t questions() const { return questions_; }
  // Drops all seals up to `epoch`: their work is done.
  void retire(Epoch epoch);
  // Drops a seal that proved nothing. Its lanes pass to the next newer seal; if there is none, they are
  // returned.
  Lane abandon(Epoch epoch);
  void forget_all();

  // Takes an event to record, if there is one; gives it back.
  bool has_event() const { return idle_count_ != 0; }
  driver::Event take_event() { return idle_[--idle_count_]; }
  void give_event(driver::Event event);

  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }

 private:
  struct Pin {
    driver::Event event = nullptr;
    uint32_t waits = 0;
    bool is_given = false;  // back by now
  };

  // 0 is the oldest.
  Seal& at(size_t index) { return ring_[(oldest_ + index) % ring_.size()]; }
  const Seal& at(size_t index) const { return ring_[(oldest_ + index) % ring_.size()]; }
  // The first from an epoch on.
  size_t find(Epoch epoch) const;
  void thin_out(Epoch apart);
  void recount_lanes() { lanes_ = lanes_up_to(~Epoch{0}); }
  void drop_event(const Seal& seal) {
    if (!seal.is_kept) give_event(seal.event);
  }
  Pin* find_pin(driver::Event event);

  // First what every call reads: between two calls of ours a program may use all of the processor's caches.
  size_t oldest_ = 0;
  size_t count_ = 0;
  size_t behind_ = 0;              // how many were not done at the last look
  size_t unfinished_ = kMost + 1;  // from here on the driver said so then
  Lane lanes_ = Lane::kNone;       // of all
  size_t idle_count_ = 0;
  size_t pin_count_ = 0;
  std::array<Seal, kMost + 1> ring_{};
  std::array<driver::Event, kMost + 2> idle_{};
  std::array<Pin, 64> pins_{};
  uint64_t questions_ = 0;
};

}  // namespace cupool::order
