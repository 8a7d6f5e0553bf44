// See stream_frees.hpp.
#include "pool/stream_frees.hpp"

#include "order/graph_launches.hpp"

namespace cupool::pool {

// Of a record beside a graph's launch into the stream nothing is lost, unlike of a wait, but programs that
// made both at a time have failed: so the two are kept apart where that takes a moment only.
bool StreamFrees::record_on(driver::Stream stream, driver::Event event) {
  const order::GraphLaunches::QuietMoment moment(
      {order::lane_of_handle(reinterpret_cast<uintptr_t>(stream)), tenancy_.context()});
  return tenancy_.driver().record_on(stream, event) == driver::kSuccess;
}

// The stream may not have waited for the work of the block's former lives, for it may have been given none on
// the block: so that counts on. Where the stream can have no event, the block waits for all work so far.
void StreamFrees::take_back(driver::Stream stream, order::Timeline* elsewhere, unsigned size_class,
                            Entry entry, uint64_t asked) {
  order::Timeline& order = tenancy_.order();
  entry.stamp = order::kFormer ? order.newest_leant_on() : 0;
  if (elsewhere != nullptr) {
    const upstream::Elsewhere until(*elsewhere);
    frees_.put_after(until, size_class, entry, asked);
    until.expect(tenancy_.in_flight());
    return;
  }
  driver::Driver& driver = tenancy_.driver();
  driver::Event event = nullptr;
  if (!order.is_idle() && !driver.may_be_capturing()) event = frees_.take_event(driver, tenancy_.context());
  // Not inside the gate: where the stream's queue is full this waits, and a capture must be able to begin.
  if (event != nullptr && record_on(stream, event)) {
    frees_.put(stream, event, size_class, entry, asked);
    return;
  }
  if (event != nullptr) frees_.give_event(event);
  entry.stamp = order.open();
  give(size_class, entry);
  if (order.is_idle()) return;
  order.keep_events();
  order.seal_for_completion();
}

void StreamFrees::give_reached(size_t most) {
  const order::Timeline& order = tenancy_.order();
  if (!frees_.any() || tenancy_.driver().may_be_capturing() || order.is_capturing()) return;
  const auto has_come = [&](const OrderedFrees::Waiting& block) {
    if (block.elsewhere.has_value()) return block.elsewhere->is_done(tenancy_.in_flight());
    return tenancy_.driver().query(block.event) == driver::kSuccess;
  };
  frees_.take_reached(most, has_come,
                      [&](const OrderedFrees::Waiting& block) { give(block.size_class, block.entry); });
}

void StreamFrees::give(unsigned size_class, const Entry& entry) {
  record_of(*entry.range).leaving.fetch_sub(1, std::memory_order_relaxed);
  blocks_.give(size_class, &entry, 1);
}

void StreamFrees::drop_all() {
  frees_.drop_all([](const OrderedFrees::Waiting& block) {
    record_of(*block.entry.range).leaving.store(0, std::memory_order_relaxed);
  });
}

}  // namespace cupool::pool
