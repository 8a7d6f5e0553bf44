// See in_flight.hpp. Call records live on the stacks of the calling threads.
#include "context/in_flight.hpp"

#include <algorithm>
#include <atomic>

#include "base/clock.hpp"

namespace cupool::context {

namespace {

// Numbers are the process's, not one list's: so a thread need not know of which list it remembers one.
constinit std::atomic<uint64_t> last_number{0};

// The newest call that there was when a wait of this thread for the releases of others ended too early. Those
// up to there are waited for no more: what they wait for may be this thread.
constinit thread_local uint64_t outlasted_by = 0;

}  // namespace

InFlight::Call::Call(InFlight& all, driver::Context context, Kind kind, int device)
    : all_(all), context_(context), kind_(kind), device_(device) {
  Guard hold(all_.lock_);
  is_open_ = context != nullptr && !all_.is_off_locked(context);
  if (!is_open_) return;
  number_ = all_.calls_ = last_number.fetch_add(1, std::memory_order_relaxed) + 1;
  next_ = all_.first_;
  if (next_ != nullptr) next_->before_ = this;
  all_.first_ = this;
}

InFlight::Call::~Call() {
  if (!is_open_) return;
  Guard hold(all_.lock_);
  (before_ != nullptr ? before_->next_ : all_.first_) = next_;
  if (next_ != nullptr) next_->before_ = before_;
}

bool InFlight::is_off_locked(driver::Context context) const {
  return std::find(failed_.begin(), failed_.end(), context) != failed_.end() ||
         std::find(ending_.begin(), ending_.end(), context) != ending_.end();
}

bool InFlight::is_off(driver::Context context) {
  Guard hold(lock_);
  return is_off_locked(context);
}

bool InFlight::has_calls(driver::Context context) {
  Guard hold(lock_);
  for (const Call* call = first_; call != nullptr; call = call->next_) {
    if (call->context_ == context) return true;
  }
  return false;
}

bool InFlight::has_releases(int device, driver::Context context, uint64_t newest) {
  Guard hold(lock_);
  for (const Call* call = first_; call != nullptr; call = call->next_) {
    const bool helps = context != nullptr
                           ? call->context_ == context
                           : device == driver::kEveryDevice || call->device_ == driver::kEveryDevice ||
                                 call->device_ == device;
    const bool is_meant = context != nullptr || call->number_ > outlasted_by;
    if (call->kind_ == Kind::kRelease && call->number_ <= newest && helps && is_meant) return true;
  }
  return false;
}

void InFlight::begin_end(driver::Context context) {
  Guard hold(lock_);
  ending_.push_back(context);
  std::erase(failed_, context);
}

void InFlight::ended(driver::Context context) {
  Guard hold(lock_);
  const auto found = std::find(ending_.begin(), ending_.end(), context);
  if (found != ending_.end()) ending_.erase(found);
}

void InFlight::fail(driver::Context context) {
  Guard hold(lock_);
  if (std::find(failed_.begin(), failed_.end(), context) == failed_.end()) failed_.push_back(context);
}

bool InFlight::wait_for_releases_of(driver::Context context) {
  return wait_for_releases(driver::kEveryDevice, context, 0);
}

bool InFlight::wait_for_releases(int device, driver::Context context, uint64_t others_ns) {
  const uint64_t newest = begun();
  bool any = false;
  for (int turn = 0; has_releases(device, context, newest); any = true) Lock::wait_a_little(turn++);
  return wait_for_releases_until(device, others_ns, newest) || any;
}

uint64_t InFlight::begun() {
  Guard hold(lock_);
  return calls_;
}

bool InFlight::wait_for_releases_until(int device, uint64_t most_ns, uint64_t newest) {
  bool any = false;
  const uint64_t begin = now_ns();
  bool is_over = !has_releases(device, nullptr, newest);
  for (int turn = 0; !is_over && now_ns() - begin < most_ns; any = true) {
    Lock::wait_a_little(turn++);
    is_over = !has_releases(device, nullptr, newest);
  }
  if (any && !is_over) outlasted_by = newest;
  return any;
}

bool InFlight::can_be_asked() {
  if (!lock_.try_lock_for_a_moment()) return false;
  lock_.unlock();
  return true;
}

void InFlight::forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  outlasted_by = 0;
  lock_.reset_after_fork();
  first_ = nullptr;
  ending_.clear();
  failed_.clear();
}

}  // namespace cupool::context
