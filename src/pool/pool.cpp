// See pool.hpp.
#include "pool/pool.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "order/idle_moment.hpp"
#include "stats/device.hpp"
#include "trace/dealings.hpp"

namespace cupool::pool {

Pool::Pool(driver::Context context, int device, uint64_t device_bytes, driver::Driver& driver,
           driver::Source& source, driver::Mapping* mapping, order::Timeline& order, InFlight& in_flight)
    : tenancy_(context, device, device_bytes, driver, source, order, in_flight),
      blocks_(this, tenancy_),
      growth_(tenancy_, blocks_.ranges()),
      frees_(tenancy_, blocks_),
      caches_(this, tenancy_, blocks_, frees_, growth_),
      segments_(tenancy_, blocks_, frees_, caches_, growth_, mapping),
      inventory_(this, tenancy_, blocks_, frees_, segments_),
      marks_(inventory_, segments_, caches_) {}

// ---- Allocation and free.

uint64_t Pool::most_unsealed(uint64_t bytes) const {
  const uint64_t reserved = blocks_.ranges().bytes().reserved();
  if (!order().is_spread()) return growth::most_unsealed(reserved);
  return growth::most_unsealed(settings(), reserved,
                               {order().lanes_in_turns(), order().has_several_threads()}, bytes);
}

bool Pool::finish_free(ThreadCache& cache, uint64_t bytes) {
  constexpr uint32_t kMostFrees = 32;
  // Rare where a seal is a wait on the host.
  constexpr uint32_t kMostFreesWaiting = 1024;
  const bool is_wait = !order().has_context_events();
  const uint32_t most_frees = is_wait ? kMostFreesWaiting : kMostFrees;
  const uint64_t most_bytes = is_wait ? settings().many_budget / 4 : most_unsealed(bytes);
  const bool is_at_once = segments_.seals_at_once(bytes);
  const bool is_due =
      is_at_once || cache.frees().seal_is_due(cache.order().open(), bytes, most_frees, most_bytes);
  const bool is_full = order().reuse() == order::Reuse::kCompleted && is_above_budget(bytes);
  if (is_full) {
    order().wait_in_free();
    unfinished_.store(0, std::memory_order_relaxed);
  } else if (is_due) {
    order().seal_in_free(is_at_once || bytes > order::Timeline::kLittle);
    if (is_at_once) segments_.eager_seals().note_seal();
  }
  cache.frees().note(cache.order().sealed());
  return is_full || (is_due && is_wait);
}

// With exact reuse, a free waits now and then for all earlier work, as every driver free does: else all
// device memory could end up freed but not reusable.
bool Pool::is_above_budget(uint64_t bytes) {
  return unfinished_.fetch_add(bytes, std::memory_order_relaxed) + bytes > settings().many_budget;
}

void Pool::take_back_marked(unsigned size_class, const Entry& entry) {
  marks_.drop(entry.address);
  blocks_.give(size_class, &entry, 1);
}

void Pool::take_back_on(driver::Stream stream, order::Timeline* elsewhere, unsigned size_class,
                        const Entry& entry, uint64_t asked) {
  marks_.drop(entry.address);
  frees_.take_back(stream, elsewhere, size_class, entry, asked);
}

// ---- Giving memory back.

uint64_t Pool::release_free_segments(uint64_t keep) {
  const uint64_t released = segments_.release_free(keep);
  if (released != 0) tenancy_.stats().count(stats::DeviceCounter::trims);
  growth_.note_released(released);
  return released;
}

uint64_t Pool::release_done(Segments::From from) {
  frees_.give_reached();
  const uint64_t tainted = segments_.release_tainted(false);
  const uint64_t released = tainted + segments_.release_done(from);
  if (released != 0) tenancy_.stats().count(stats::DeviceCounter::trims);
  growth_.note_released(released);
  return released;
}

// The driver's free of a segment waits for what is pending; for mapped memory that is done here, if there is
// any to gain.
uint64_t Pool::release_everything(allocator::Effort effort) {
  using allocator::Effort;
  if (context() == nullptr || order().is_capturing()) return 0;
  caches_.empty_all();
  order().advance();
  // A free that gives nothing back may wait for this very call. Where only the driver's free can give
  // segments back, it waits by itself.
  const bool can_go = segments_.can_go_when_done(Segments::From::kInside);
  const auto may_gain = [&] {
    return can_go && (segments_.has_vacated() || ranges().has_unfinished(order().done()));
  };
  if (effort != Effort::kDone && may_gain()) order().wait_for_frees();
  uint64_t released = release_done();
  if (effort != Effort::kAll) return released;
  if (ranges().has_mapped_segments() && may_gain()) order().wait_for_all();
  released += segments_.release_tainted(true);
  return released + release_free_segments(0);
}

// The driver's free would wait for all work here, which may wait for the thread that asks; so segments that
// only it can give back go while nothing is pending.
uint64_t Pool::release_for_other_context(allocator::Effort effort, order::Epoch own) {
  using allocator::Effort;
  if (context() == nullptr || order().is_capturing()) return 0;
  caches_.empty_all();
  order().advance_from_outside();
  const auto outside = Segments::From::kOutside;
  const bool can_go = segments_.can_go_when_done(outside);
  const bool may_gain = can_go ? segments_.has_vacated() || ranges().has_unfinished(order().done())
                               : !order().is_idle() && ranges().bytes().free() != 0;
  if (effort == Effort::kFrees && may_gain)
    order().wait_for_frees_elsewhere(own, allocator::kMostForOtherContexts);
  uint64_t released = can_go ? release_done(outside) : 0;
  released += release_idle({});
  const order::IdleMoment moment(order());
  if (moment.has_come()) released += segments_.release_tainted(true);
  return released;
}

uint64_t Pool::trim(uint64_t keep) {
  if (context() == nullptr || order().is_capturing()) return 0;
  caches_.empty_all();
  segments_.look_what_is_done();
  return release_free_segments(keep);
}

bool Pool::trim_to_limit() {
  const uint64_t most = tenancy_.max_cached();
  if (ranges().bytes().free() <= most || order().is_capturing()) return false;
  segments_.look_what_is_done();
  const bool may_wait = ranges().has_driver_segments();
  const trace::Because because(trace::Why::kLimit);
  return release_free_segments(most) != 0 && may_wait;
}

uint64_t Pool::release_idle(const allocator::Idle& which) {
  const bool is_meant = which.device == allocator::kEveryDevice || which.device == device();
  if (!is_meant || context() == nullptr || order().is_capturing()) return 0;
  const growth::Figures before = growth_.figures();
  const uint64_t released = segments_.release_idle(which, now_ns() / 1'000'000);
  if (released != 0) growth_.note_pause(before);
  growth_.note_released(released);
  return released;
}

// ---- The end of a context.

// The caller has waited for all calls in flight. Mapped memory does not end with its context: it is unmapped
// once the driver has ended that, and all work with it.
void Pool::close(uint64_t number) {
  inventory_.note_needs();
  caches_.drop_kept();
  frees_.drop_all();
  blocks_.slabs().drop_all();
  segments_.drop_all();
  marks_.drop_all();
  tenancy_.close(number);
}

void Pool::ended(bool gone) {
  segments_.ended(gone);
  tenancy_.note_ended();
}

bool Pool::reopen(driver::Context context, int device, order::Timeline& order) {
  if (tenancy_.closed_at() == 0 || device != tenancy_.device()) return false;
  // A free that read the old context before its end may have cached its block since.
  caches_.drop_kept();
  growth_.reset();
  caches_.set_order(order);
  tenancy_.reopen(context, order);
  return true;
}

}  // namespace cupool::pool
