// The list of pending seals and the events of one context. Mechanism only, under the timeline's lock: see
// seals.hpp. Only asks the driver whether events are done.
#include "order/seals.hpp"

#include <algorithm>
#include <utility>

namespace cupool::order {

void Seals::push(Epoch epoch, Lane lanes) {
  constexpr Epoch kTimesMean = 4;
  if (count_ > kMost) {
    Epoch apart = kTimesMean * (newest().epoch - at(0).epoch) / count_;
    for (; count_ > kMost; apart *= 2) thin_out(apart);
  }
  at(count_++) = {.epoch = epoch, .lanes = lanes};
  lanes_ = unite(lanes_, lanes);
}

// Lets seals pass into their successors all along the list, evenly by epoch, so that a stream waits a little
// longer for old work, never for all there is. The oldest stays: it is the next to be done. A seal that work
// may wait for merges only into another such seal; any other may merge into any.
void Seals::thin_out(Epoch apart) {
  size_t kept = 1;
  for (size_t i = 1; i < count_; ++i) {
    const bool merges = i + 1 < count_ && (at(i + 1).in_free || !at(i).in_free) &&
                        at(i + 1).epoch - at(kept - 1).epoch <= apart;
    if (merges) {
      at(i + 1).lanes = unite(at(i + 1).lanes, at(i).lanes);
      drop_event(at(i));
      ++i;
    }
    at(kept++) = at(i);
  }
  count_ = kept;
}

size_t Seals::find(Epoch epoch) const {
  size_t low = 0;
  for (size_t high = count_; low < high;) {
    const size_t middle = low + (high - low) / 2;
    if (at(middle).epoch < epoch) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

Seal* Seals::covering(Epoch epoch) {
  for (size_t i = find(epoch); i < count_; ++i) {
    if (at(i).event != nullptr && at(i).in_free) return &at(i);
  }
  return nullptr;
}

Lane Seals::lanes_up_to(Epoch epoch) const {
  Lane all = Lane::kNone;
  for (size_t i = 0; i < count_ && at(i).epoch <= epoch && (all != Lane::kMany || !kAllLanes); ++i) {
    // Rule off: pretends that a seal's event covers only its own lanes.
    if (!kAllLanes) all = Lane::kNone;
    all = unite(all, at(i).lanes);
  }
  return all;
}

void Seals::rename(Lane lane) {
  for (size_t i = 0; i < count_; ++i) {
    if (at(i).lanes == lane) at(i).lanes = Lane::kMany;
  }
  recount_lanes();
}

// Each event covers all work of those before it, so few have to be asked. The device is mostly as far behind
// as it was at the last look: from there in growing steps, then by halves.
Epoch Seals::newest_done(driver::Driver& driver, bool* failed) {
  const size_t all = count_;
  size_t done = 0;
  size_t high = all;
  size_t from = all - std::min(all, behind_ + 1);
  unfinished_ = all;
  for (size_t step = 1; done < high && !*failed; step *= 2) {
    // A seal for a program's wait has no event to query; a later seal may still prove it.
    size_t asked = from;
    while (asked < high && at(asked).event == nullptr) ++asked;
    if (asked != high) ++questions_;
    const driver::Status status = asked == high ? driver::kNotReady : driver.query(at(asked).event);
    *failed = status != driver::kSuccess && status != driver::kNotReady;
    if (status == driver::kSuccess) {
      done = asked + 1;
    } else {
      high = from;
      if (status == driver::kNotReady) unfinished_ = std::min(unfinished_, asked);
    }
    if (high == all) {
      from = std::min(done + step - 1, high - 1);
    } else if (done == 0) {
      from = high - std::min(step, high);
    } else {
      from = done + (high - done) / 2;
    }
  }
  // If none was done, the oldest is the next to be.
  behind_ = done == 0 ? kMost : all - done;
  return done == 0 ? 0 : at(done - 1).epoch;
}

uint64_t Seals::take_decided() {
  uint64_t decided = 0;
  for (size_t i = unfinished_; i < count_; ++i) decided += std::exchange(at(i).undecided, 0);
  return decided;
}

void Seals::retire(Epoch epoch) {
  const size_t over = find(epoch + 1);
  for (size_t i = 0; i < over; ++i) drop_event(at(i));
  oldest_ += over;
  count_ -= over;
  recount_lanes();
}

Lane Seals::abandon(Epoch epoch) {
  const size_t index = find(epoch);
  if (index == count_ || at(index).epoch != epoch) return Lane::kNone;
  const Lane lanes = at(index).lanes;
  drop_event(at(index));
  for (size_t i = index; i + 1 < count_; ++i) at(i) = at(i + 1);
  --count_;
  if (index < count_) at(index).lanes = unite(at(index).lanes, lanes);
  recount_lanes();
  return index < count_ ? Lane::kNone : lanes;
}

void Seals::forget_all() {
  count_ = idle_count_ = pin_count_ = 0;
  lanes_ = Lane::kNone;
}

void Seals::give_event(driver::Event event) {
  if (event == nullptr) return;
  if (Pin* const pin = find_pin(event)) {
    pin->is_given = true;
  } else if (idle_count_ < idle_.size()) {
    idle_[idle_count_++] = event;
  }
}

Seals::Pin* Seals::find_pin(driver::Event event) {
  for (size_t i = 0; i < pin_count_; ++i) {
    if (pins_[i].event == event) return &pins_[i];
  }
  return nullptr;
}

// If the table of pins is full, the event is not reused: that many threads stand in calls of their own.
void Seals::pin(Seal& seal) {
  if (Pin* const pin = find_pin(seal.event)) {
    ++pin->waits;
  } else if (pin_count_ < pins_.size()) {
    pins_[pin_count_++] = {seal.event, 1, false};
  } else {
    seal.is_kept = true;
  }
}

// None is found if there was no room, or if the context has ended meanwhile.
void Seals::unpin(driver::Event event) {
  Pin* const pin = find_pin(event);
  if (pin == nullptr || --pin->waits != 0) return;
  const bool is_given = pin->is_given;
  *pin = pins_[--pin_count_];
  if (is_given) give_event(event);
}

}  // namespace cupool::order
