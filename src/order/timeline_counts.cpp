// Which frees have avoided a wait: a lower bound, by questions that are asked anyway. The driver's free waits
// for all work; so a free counts if some was submitted since the last free or wait, and if the driver says of
// an event before it, later on, that it is not done. One thread's work is known by its number, that of
// several by the seal that covers it. The first frees ask the driver themselves, for the sake of short
// programs.
#include "base/reentry.hpp"
#include "order/timeline.hpp"

namespace cupool::order {

// (With several lanes the new work may have ended unseen while older work goes on. Then a free counts though
// under the driver the free before it would have waited for the older work.)
bool Timeline::has_new_work_locked() {
  if (thread_ == &thread_token_ && !has_several_threads())
    return Reentry::last_place() == life_.load(std::memory_order_relaxed) &&
           Reentry::work_mark() != work_counted_;
  const Seal& newest = seals_.newest();
  return sealer_ == &thread_token_ && newest.in_free && newest.lanes != Lane::kNone && !newest.is_counted &&
         newest.epoch > epoch_counted_;
}

void Timeline::forget_new_work_locked() {
  work_counted_ = Reentry::work_mark();
  const bool has_noted = noted_.load(std::memory_order_relaxed) != Lane::kNone;
  epoch_counted_ = open_.load(std::memory_order_relaxed) - (has_noted ? 0 : 1);
  if (!seals_.empty()) seals_.newest().is_counted = true;
}

// The program waits. Where all new work is known to be another stream's, that is not over. (The legacy stream
// has others wait for it.)
void Timeline::forget_waited_locked(Lane lane) {
  const Lane noted = noted_.load(std::memory_order_relaxed);
  const Lane newest = noted == Lane::kNone && !seals_.empty() ? seals_.newest().lanes : noted;
  const bool is_one = lane != Lane::kMany && lane != Lane::kLegacy;
  const bool is_others = is_one && newest != Lane::kNone && newest != Lane::kMany && newest != lane;
  if (!is_others) forget_new_work_locked();
}

void Timeline::note_unwaited_free(stats::Device& device) {
  constexpr uint32_t kMostQuestions = 256;
  if (driver_.may_be_capturing() || !lock_.try_lock()) return;
  if (!seals_.empty() && seals_.newest().event != nullptr && !failed_ && !gate_.is_capturing() &&
      has_new_work_locked()) {
    Seal& newest = seals_.newest();
    counts_ = &device;
    if (asked_to_count_ == kMostQuestions) {
      ++newest.undecided;
    } else {
      ++asked_to_count_;
      if (driver_.query_to_count(newest.event) == driver::kNotReady)
        device.count(stats::DeviceCounter::waits_avoided);
    }
    forget_new_work_locked();
  }
  lock_.unlock();
}

void Timeline::count_decided_locked() {
  const uint64_t decided = seals_.take_decided();
  if (decided != 0) counts_->count(stats::DeviceCounter::waits_avoided, decided);
}

}  // namespace cupool::order
