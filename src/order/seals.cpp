// The list of pending seals and the events of each context. Runs under the timeline's lock, decides nothing:
// see seals.hpp. Calls the driver for events only, never for memory.
#include "order/seals.hpp"

#include <algorithm>

namespace cupool::order {

void Seals::join(driver::Context context) {
  for (const Member& member : contexts_) {
    if (member.context == context) return;
  }
  contexts_.push_back({context, {}});
}

void Seals::leave(driver::Context context) {
  // Destroying a context waits for its work, so its marks are as good as done; its events must not be asked
  // any more.
  for (Seal& seal : pending_) {
    std::erase_if(seal.marks, [&](const Mark& mark) { return mark.context == context; });
  }
  std::erase_if(contexts_, [&](const Member& member) { return member.context == context; });
}

void Seals::push(Epoch epoch, Lane lanes) {
  if (pending_.size() >= kMost) lanes = unite(lanes, abandon(pending_.back().epoch));
  pending_.push_back({epoch, lanes, {}});
}

driver::Event Seals::take_event(Member& member) {
  if (!member.idle.empty()) {
    const driver::Event event = member.idle.back();
    member.idle.pop_back();
    return event;
  }
  driver::Event event = nullptr;
  return driver_->create_event(member.context, &event) == driver::kSuccess ? event : nullptr;
}

bool Seals::record_newest() {
  Seal& seal = pending_.back();
  for (Member& member : contexts_) {
    const driver::Event event = take_event(member);
    if (event == nullptr) return false;
    seal.marks.push_back({member.context, event});
    if (driver_->record(member.context, event) != driver::kSuccess) return false;
  }
  return !seal.marks.empty();
}

bool Seals::order_after_newest() {
  for (const Member& member : contexts_) {
    for (const Mark& mark : pending_.back().marks) {
      if (driver_->order_after(member.context, mark.event) != driver::kSuccess) return false;
    }
  }
  return true;
}

Epoch Seals::newest_done() {
  Epoch done = 0;
  for (const Seal& seal : pending_) {
    // A seal that stands for the application's wait is not ours to judge; a later one may still prove it too.
    if (seal.marks.empty()) continue;
    for (const Mark& mark : seal.marks) {
      if (driver_->query(mark.event) != driver::kSuccess) return done;
    }
    done = seal.epoch;
  }
  return done;
}

void Seals::retire(Epoch epoch) {
  size_t count = 0;
  for (; count < pending_.size() && pending_[count].epoch <= epoch; ++count) recycle(pending_[count]);
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(count));
}

Lane Seals::abandon(Epoch epoch) {
  for (auto seal = pending_.begin(); seal != pending_.end(); ++seal) {
    if (seal->epoch != epoch) continue;
    const Lane lanes = seal->lanes;
    recycle(*seal);
    pending_.erase(seal);
    return lanes;
  }
  return Lane::kNone;
}

void Seals::forget_lanes() {
  for (Seal& seal : pending_) seal.lanes = Lane::kNone;
}

Lane Seals::lanes() const {
  Lane all = Lane::kNone;
  for (const Seal& seal : pending_) all = unite(all, seal.lanes);
  return all;
}

std::vector<driver::Context> Seals::context_list() const {
  std::vector<driver::Context> list;
  for (const Member& member : contexts_) list.push_back(member.context);
  return list;
}

void Seals::recycle(Seal& seal) {
  for (const Mark& mark : seal.marks) {
    for (Member& member : contexts_) {
      if (member.context == mark.context) member.idle.push_back(mark.event);
    }
  }
  seal.marks.clear();
}

void Seals::forget_all() {
  contexts_.clear();
  pending_.clear();
}

}  // namespace cupool::order
