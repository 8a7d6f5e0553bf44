// Where the process's pools meet memory that is never cut, and questions that concern both kinds. Nothing
// here is on the way of an ordinary allocation or free. Holds no lock across a call of the driver.
#include <algorithm>
#include <new>

#include "pool/page_map.hpp"
#include "pool/pools.hpp"
#include "stats/counters.hpp"

namespace cupool::pool {

using driver::kSuccess;

namespace {
// How far the answer to "how much is free" may be off for managed memory that lies idle.
constexpr uint64_t kIdleManaged = 64 << 20;
}  // namespace

Wholes* Pools::wholes() {
  if (Wholes* wholes = wholes_.load(std::memory_order_acquire)) return wholes;
  Guard hold(lock_);
  if (wholes_.load(std::memory_order_relaxed) == nullptr) {
    wholes_.store(new (std::nothrow) Wholes(order_), std::memory_order_release);
  }
  return wholes_.load(std::memory_order_relaxed);
}

Status Pools::allocate_whole(driver::Context context, driver::Driver& source, uint64_t bytes, Address* out) {
  size_t free = 0;
  size_t total = 0;
  const Arrival arrival(*this, context);
  Wholes* table = wholes();
  if (!arrival.is_welcome() || table == nullptr || driver_->memory(&free, &total) != kSuccess)
    return source.allocate(bytes, out);
  order_.join(context);
  return table->allocate(context, source, bytes, Settings::from(config::options(), total), out);
}

Freed Pools::free_whole(Address address, Waits waits) {
  Wholes* wholes = wholes_.load(std::memory_order_acquire);
  Freed freed = wholes == nullptr ? Freed::kNotOurs : wholes->free(address);
  if (Native* const one = native(); freed == Freed::kNotOurs && one != nullptr && one->free(address))
    freed = Freed::kDone;
  if (freed == Freed::kDone && waits == Waits::kIfAsked && config::options().free == config::FreeMode::kSync)
    order_.wait_for_all();
  return freed;
}

uint64_t Pools::release_whole() {
  Wholes* wholes = wholes_.load(std::memory_order_acquire);
  if (wholes == nullptr || order_.is_capturing()) return 0;
  return wholes->release(false, 0) + wholes->release(true, 0);
}

void Pools::release_idle_managed() {
  Wholes* wholes = wholes_.load(std::memory_order_acquire);
  if (wholes != nullptr && !order_.is_capturing()) wholes->release(true, kIdleManaged);
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
