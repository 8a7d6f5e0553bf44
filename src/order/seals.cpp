// The list of pending seals and the events of one context. Mechanism only, under the timeline's lock: see
// seals.hpp. Calls the driver for events only.
#include "order/seals.hpp"

#include <algorithm>

#include "order/rules.hpp"

namespace cupool::order {

void Seals::push(Epoch epoch, Lane lanes) {
  make_room();
  pending_[count_++] = {epoch, lanes, nullptr, false};
}

// A seal that work may wait for merges only into another such seal; any other may merge into any.
void Seals::make_room() {
  for (size_t i = count_ - 1; count_ > kMost && i-- > 0;) {
    if (pending_[i].in_free && !pending_[i + 1].in_free) continue;
    pending_[i + 1].lanes = unite(pending_[i + 1].lanes, pending_[i].lanes);
    give_event(pending_[i].event);
    remove(i);
  }
}

void Seals::remove(size_t index) {
  std::copy(pending_.begin() + index + 1, pending_.begin() + count_, pending_.begin() + index);
  --count_;
}

const Seal* Seals::covering(Epoch epoch) const {
  for (size_t i = 0; i < count_; ++i) {
    const Seal& seal = pending_[i];
    if (seal.epoch >= epoch && seal.event != nullptr && seal.in_free) return &seal;
  }
  return nullptr;
}

Lane Seals::lanes_up_to(Epoch epoch) const {
  Lane all = Lane::kNone;
  for (size_t i = 0; i < count_ && pending_[i].epoch <= epoch; ++i) {
    // Rule off: pretends that a seal's event covers only its own lanes.
    if (!kAllLanes) all = Lane::kNone;
    all = unite(all, pending_[i].lanes);
  }
  return all;
}

void Seals::rename(Lane lane) {
  for (size_t i = 0; i < count_; ++i) {
    if (pending_[i].lanes == lane) pending_[i].lanes = Lane::kMany;
  }
}

Epoch Seals::newest_done(driver::Driver& driver, bool* failed) const {
  Epoch done = 0;
  for (size_t i = 0; i < count_; ++i) {
    // A seal for a program's wait has no event to query; a later seal may still prove it.
    if (pending_[i].event == nullptr) continue;
    const driver::Status status = driver.query(pending_[i].event);
    if (status != driver::kSuccess) {
      *failed = status != driver::kNotReady;
      break;
    }
    done = pending_[i].epoch;
  }
  return done;
}

void Seals::retire(Epoch epoch) {
  size_t over = 0;
  for (; over < count_ && pending_[over].epoch <= epoch; ++over) give_event(pending_[over].event);
  std::copy(pending_.begin() + over, pending_.begin() + count_, pending_.begin());
  count_ -= over;
}

Lane Seals::abandon(Epoch epoch) {
  for (size_t i = 0; i < count_; ++i) {
    if (pending_[i].epoch != epoch) continue;
    const Lane lanes = pending_[i].lanes;
    give_event(pending_[i].event);
    remove(i);
    if (i == count_) return lanes;
    pending_[i].lanes = unite(pending_[i].lanes, lanes);
    break;
  }
  return Lane::kNone;
}

void Seals::forget_all() { count_ = idle_count_ = 0; }

driver::Event Seals::take_event(driver::Driver& driver, driver::Context context) {
  if (idle_count_ != 0) return idle_[--idle_count_];
  driver::Event event = nullptr;
  return driver.create_event(context, &event) == driver::kSuccess ? event : nullptr;
}

void Seals::give_event(driver::Event event) {
  if (event != nullptr && idle_count_ < idle_.size()) idle_[idle_count_++] = event;
}

}  // namespace cupool::order
