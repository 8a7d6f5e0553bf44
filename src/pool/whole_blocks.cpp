// Where the process's pools meet memory that is never cut, and questions that concern both kinds. Nothing
// here is on the way of an ordinary allocation or free. Holds no lock across a call of the driver.
#include <algorithm>
#include <new>

#include "base/host_memory.hpp"
#include "pool/page_map.hpp"
#include "pool/pools.hpp"
#include "stats/counters.hpp"

namespace cupool::pool {

namespace {
// How far the answer to "how much is free" may be off for managed memory that lies idle.
constexpr uint64_t kIdleManaged = 64 << 20;
}  // namespace

Wholes* Pools::wholes() {
  if (Wholes* wholes = wholes_.load(std::memory_order_acquire)) return wholes;
  Guard hold(lock_);
  if (wholes_.load(std::memory_order_relaxed) == nullptr) {
    auto* const made = new (std::nothrow) Wholes(order_);
    const uint64_t max_cached = max_cached_.load(std::memory_order_relaxed);
    if (made != nullptr && max_cached != kFromOptions) made->set_max_cached(max_cached);
    wholes_.store(made, std::memory_order_release);
  }
  return wholes_.load(std::memory_order_relaxed);
}

Status Pools::allocate_whole(driver::Context context, driver::Driver& source, uint64_t bytes, Address* out) {
  const Arrival arrival(*this, context);
  Wholes* table = wholes();
  if (!arrival.is_welcome() || table == nullptr || host::is_short() || !table->open(context, source))
    return source.is_host_visible() ? source.allocate(bytes, out) : forward(bytes, out);
  Status status = table->allocate(context, source, bytes, out);
  // It gave back what it could; others may keep memory on the same device.
  if (status == driver::kOutOfMemory && table->may_take(context, source, bytes) && release_everything() != 0)
    status = table->allocate(context, source, bytes, out);
  if (status == driver::kOutOfMemory) table->note_failure(context, source, bytes);
  return status;
}

Freed Pools::free_whole(Address address, Waits waits) {
  Wholes* wholes = wholes_.load(std::memory_order_acquire);
  driver::Context owner = nullptr;
  const bool waits_now = waits == Waits::kIfAsked && config::options().free == config::FreeMode::kSync;
  const bool decays = waits == Waits::kIfAsked && config::options().decay_ms != 0;
  if (waits_now || decays) owner = owner_of_whole(address);
  Freed freed = wholes == nullptr ? Freed::kNotOurs : wholes->free(address, waits == Waits::kIfAsked);
  order::Timeline* const order = owner == nullptr ? nullptr : order_.of(owner);
  if (freed == Freed::kDone && decays && order != nullptr && order->has_several_threads())
    wholes->decay(owner);
  if (Native* const one = native(); freed == Freed::kNotOurs && one != nullptr && one->free(address))
    freed = Freed::kDone;
  if (freed == Freed::kDone && waits_now && order != nullptr) order->wait_for_all();
  return freed;
}

// The context of a block that is not cut; null: there is none at this address.
driver::Context Pools::owner_of_whole(Address address) {
  Address start = 0;
  uint64_t bytes = 0;
  driver::Context context = nullptr;
  Wholes* const wholes = wholes_.load(std::memory_order_acquire);
  if (wholes != nullptr && wholes->find(address, &start, &bytes, &context)) return context;
  Native* const one = native();
  return one == nullptr ? nullptr : one->owner(address);
}

uint64_t Pools::release_whole() {
  Wholes* wholes = wholes_.load(std::memory_order_acquire);
  if (wholes == nullptr) return 0;
  return wholes->release(false, 0) + wholes->release(true, 0);
}

uint64_t Pools::trim_whole(uint64_t keep) {
  Wholes* wholes = wholes_.load(std::memory_order_acquire);
  return wholes == nullptr ? 0 : wholes->trim(keep);
}

bool Pools::device_of(driver::Context context, int* device) {
  if (const Pool* pool = pool_of(context)) {
    *device = pool->device();
    return true;
  }
  Wholes* wholes = wholes_.load(std::memory_order_acquire);
  return wholes != nullptr && wholes->device_of(context, device);
}

// Only where no work is under way: the driver's free would wait for it, and a question must not.
void Pools::release_idle_managed(driver::Context context) {
  Wholes* wholes = wholes_.load(std::memory_order_acquire);
  if (wholes == nullptr || context == nullptr) return;
  order::Timeline* const order = order_.find(context);
  if (order == nullptr) return;
  order->advance();
  if (order->is_idle()) wholes->release_of(context, true, kIdleManaged);
}

bool Pools::find(Address address, Pool::Held* out) const {
  if (Pool* pool = pool_at(address)) return pool->find_held(address, out);
  Wholes* wholes = wholes_.load(std::memory_order_acquire);
  if (wholes == nullptr || !wholes->find(address, &out->start, &out->bytes, &out->context)) return false;
  out->whole = true;
  out->segment = out->start;
  out->segment_number = 0;
  return true;
}

bool Pools::owns(Address address) const {
  if (page_map.is_ours(address)) return true;
  Wholes* wholes = wholes_.load(std::memory_order_acquire);
  return wholes != nullptr && wholes->owns(address);
}

bool Pools::taint(Address address, Taint reason, uint64_t bytes) const {
  if (Pool* pool = pool_at(address)) return pool->taint(address, reason);
  Wholes* wholes = wholes_.load(std::memory_order_acquire);
  return wholes != nullptr && wholes->taint(address, bytes, reason);
}

}  // namespace cupool::pool
