// The slow path behind memory/hot_path.hpp, the calling thread's caches, and the table of pools under
// `lock_`.
#include "pool/pools.hpp"

#include <pthread.h>

#include <algorithm>
#include <optional>

#include "base/log.hpp"
#include "pool/page_map.hpp"

namespace cupool::pool {

using driver::kSuccess;

constinit thread_local ThisThread this_thread;

namespace {

// Made with the first pool; may fail if the program has used up all keys.
constinit pthread_key_t thread_key = 0;
constinit std::atomic<bool> has_thread_key{false};
void on_thread_end(void*) { Pools::end_thread(); }

void make_thread_key() {
  if (has_thread_key.load(std::memory_order_relaxed)) return;
  has_thread_key.store(pthread_key_create(&thread_key, on_thread_end) == 0, std::memory_order_release);
}

// Scope of a call that may give this thread a cache: an unannounced thread gives it up at the end.
class Parting {
 public:
  Parting() = default;
  ~Parting() {
    if (this_thread.unannounced) [[unlikely]]
      Pools::end_thread();
  }
  Parting(const Parting&) = delete;
  Parting& operator=(const Parting&) = delete;
};

// Hands out a block from this thread's cache; false: none may be handed out.
bool hand_out_kept(ThreadCache& cache, unsigned size_class, uint64_t asked, Address* out) {
  Entry entry;
  cache.enter();
  const Epoch limit = cache.order().cheap();
  const bool hit = size_class != kNotKept ? cache.take(size_class, order::Reach::kCheap, &entry)
                                          : cache.large().stamp() <= limit &&
                                                cache.large().take(cache.sizes().rounded(asked), &entry);
  cache.exit();
  if (!hit) return false;
  if (size_class == kNotKept && limit == order::kAnyStamp) entry.stamp = 0;
  cache.order().lean_on(entry.stamp, entry.address);
  hand_out(cache, entry, size_class, cache.kept_bytes(size_class, entry), asked, out);
  return true;
}

// A freed block and what the records say of it. No pool: its context has ended meanwhile.
struct Returned {
  Entry entry;
  Pool* pool;
  uint64_t block_bytes;
  unsigned size_class;
};
inline Returned describe(Address address) {
  const Holder* const holder = page_map.find(address);
  if (holder == nullptr) return {};
  const unsigned size_class = holder->class_of_blocks();
  return {{address, holder->range, 0, holder->tags + holder->index_of(address)},
          holder->pool,
          size_class != kNotKept ? holder->bytes_of_blocks() : holder->range->bytes,
          size_class};
}

}  // namespace

// The thread's last cache may be another context's, or there is none.
Status Pools::allocate(driver::Context context, uint64_t bytes, Address* out, Short when_short) {
  const Parting parting;
  ThreadCache* cache = this_thread.last;
  if (cache == nullptr || cache->pool()->context() != context) {
    cache = cache_of(context);
    if (cache == nullptr) return allocator::kDeclined;
  }
  return allocate_missed(bytes, out, when_short);
}

Status Pools::allocate_missed(uint64_t bytes, Address* out, Short when_short) {
  ThreadCache& cache = *this_thread.last;
  const unsigned size_class = cache.sizes().of(bytes);
  // For small blocks find_block() looks in the cache itself.
  if (!cache.sizes().is_small(size_class) && hand_out_kept(cache, size_class, bytes, out)) return kSuccess;
  Pool& pool = *cache.pool();
  // Keeps the context alive until the program has the block.
  const Tenancy::Use use(pool.tenancy(), cache);
  if (!use.is_open()) return allocator::kDeclined;
  Entry entry;
  const Status status = pool.find_block(cache, size_class, bytes, when_short, &entry);
  if (status != kSuccess) return status;
  cache.order().lean_on(entry.stamp, entry.address);
  if (cache.sizes().is_small(size_class)) {
    hand_out(cache, entry, size_class, cache.sizes().bytes(size_class), bytes, out);
  } else {
    hand_out(cache, entry, entry.range->class_of_blocks(), entry.range->bytes, bytes, out);
  }
  return kSuccess;
}

bool Pools::may_take(driver::Context context, uint64_t bytes) {
  Pool* const pool = pool_of(context);
  if (pool == nullptr) return false;
  pool->give_reached();
  return pool->may_take(bytes);
}

void Pools::note_failure(driver::Context context, uint64_t bytes) {
  if (Pool* const pool = pool_of(context)) pool->inventory().note_failure(bytes);
}

// pre: the block is not live: the hot path has cleared its tag, or found none.
Freed Pools::free(Address address, Waits) {
  return page_map.is_ours(address) ? Freed::kNobodys : Freed::kNotOurs;
}

// The context may end until `use` has begun, so the block is looked up after that.
Freed Pools::free_unkept(Address address, uint64_t asked) {
  ThreadCache& cache = *this_thread.last;
  const Tenancy::Use use(cache.pool()->tenancy(), cache);
  Returned block = describe(address);
  if (!use.is_open() || block.pool != cache.pool()) return Freed::kNotOurs;
  block.entry.stamp = cache.order().open();
  cache.tally().take_back(asked, block.block_bytes);
  block.pool->caches().take_back(cache, block.size_class, block.entry);
  end_free(*block.pool, cache, block.block_bytes);
  return Freed::kDone;
}

// All waiting for work happens here, where the program expects it.
void Pools::end_free(Pool& pool, ThreadCache& cache, uint64_t bytes) {
  if (!cache.order().is_idle()) pool.finish_free(cache, bytes);
  pool.trim_to_limit();
}

Freed Pools::finish_free(Address address, Unkept why, uint64_t asked) {
  if (why == Unkept::kUnsealed) {
    ThreadCache& cache = *this_thread.last;
    if (const Tenancy::Use use(cache.pool()->tenancy(), cache); use.is_open())
      end_free(*cache.pool(), cache, asked);
    return Freed::kDone;
  }
  if (why == Unkept::kNoRoom) return free_unkept(address, asked);
  if (why == Unkept::kNobodys) return free(address, Waits::kIfAsked);
  const Parting parting;
  Pool* const pool = page_map.pool_of(address);
  if (pool == nullptr || pool->context() == nullptr) return Freed::kNotOurs;
  ThreadCache* cache = this_thread.last;
  if (cache == nullptr || cache->pool() != pool) cache = find_cache(pool);
  std::optional<Tenancy::Use> use;
  if (cache != nullptr) use.emplace(pool->tenancy(), *cache);
  Returned block = describe(address);
  if ((use && !use->is_open()) || block.pool != pool) return Freed::kNotOurs;
  block.entry.stamp = pool->order().open();
  if (pool->settings().free_waits) pool->order().wait_for_all();
  if (cache != nullptr) cache->tally().take_back(asked & ~kMarkedAsked, block.block_bytes);
  if (cache == nullptr || (asked & kMarkedAsked) != 0) {
    pool->take_back_marked(block.size_class, block.entry);
  } else if (!ThreadCaches::keep(*cache, block.size_class, block.entry)) {
    pool->caches().take_back(*cache, block.size_class, block.entry);
  }
  if (cache != nullptr) end_free(*pool, *cache, block.block_bytes);
  pool->segments().release_tainted(true);
  return Freed::kDone;
}

Freed Pools::free_on(Address address, driver::Stream stream, order::Timeline* elsewhere) {
  const Parting parting;
  const Holder* const holder = page_map.find(address);
  const uint32_t index = holder == nullptr ? 0 : holder->index_of(address);
  if (holder == nullptr || index >= holder->blocks) return free(address, Waits::kNever);
  // First, so that nobody takes the block for free meanwhile.
  holder->leaving.fetch_add(1, std::memory_order_relaxed);
  const uint16_t held = holder->tags[index].exchange(0, std::memory_order_release);
  Pool* const pool = holder->pool;
  if (held == 0 || pool->context() == nullptr) {
    holder->leaving.fetch_sub(1, std::memory_order_relaxed);
    return held == 0 ? free(address, Waits::kNever) : Freed::kNotOurs;
  }
  const uint64_t asked = holder->asked(held);
  ThreadCache* const cache = find_cache(pool);
  std::optional<Tenancy::Use> use;
  if (cache != nullptr) use.emplace(pool->tenancy(), *cache);
  const Returned block = describe(address);
  if ((use && !use->is_open()) || block.pool != pool) {
    holder->leaving.fetch_sub(1, std::memory_order_relaxed);
    return Freed::kNotOurs;
  }
  if (cache != nullptr) cache->tally().take_back(asked, block.block_bytes);
  pool->take_back_on(stream, elsewhere, block.size_class, block.entry, asked);
  return Freed::kDone;
}

void Pools::refuse_free(Address address, Unkept why, uint64_t asked) {
  const Holder* const holder = why == Unkept::kNobodys ? nullptr : page_map.find(address);
  if (holder == nullptr) return;
  // The tag that hand_out() stored.
  const uint64_t told = holder->bytes_of_blocks() + uint64_t{1} - (asked & ~kMarkedAsked);
  const bool apart = holder->class_of_blocks() == kNotKept || told >= kAskedApart;
  const unsigned mark = (asked & kMarkedAsked) != 0 ? kMarkedTag : 0u;
  holder->tags[holder->index_of(address)].store(
      static_cast<uint16_t>((apart ? kAskedApart : static_cast<unsigned>(told)) | mark),
      std::memory_order_relaxed);
}

ThreadCache* Pools::cache_of(driver::Context context) {
  Pool* pool = pool_of(context);
  if (pool == nullptr) pool = open(context);
  return pool == nullptr ? nullptr : find_cache(pool);
}

ThreadCache* Pools::find_cache(Pool* pool) {
  for (ThreadCache* cache = this_thread.all; cache != nullptr; cache = cache->next_of_thread) {
    if (cache->pool() == pool) return this_thread.last = cache;
  }
  ThreadCache* cache = pool->caches().adopt();
  if (cache == nullptr) return nullptr;
  cache->next_of_thread = this_thread.all;
  this_thread.all = this_thread.last = cache;
  const bool announced =
      has_thread_key.load(std::memory_order_acquire) && pthread_setspecific(thread_key, &this_thread) == 0;
  if (!announced) this_thread.unannounced = true;
  return cache;
}

void Pools::end_thread() {
  ThreadCache* cache = this_thread.all;
  // Destructors of other keys may still use CUDA, and ours may not be called again.
  this_thread = {.unannounced = true};
  while (cache != nullptr) {
    ThreadCache* next = cache->next_of_thread;
    cache->pool()->caches().abandon(cache);
    cache = next;
  }
}

Pool* Pools::pool_of(driver::Context context) {
  for (auto& slot : pools_) {
    Pool* pool = slot.load(std::memory_order_acquire);
    if (pool == nullptr) return nullptr;
    if (pool->context() == context) return pool;
  }
  return nullptr;
}

Pool* Pools::open(driver::Context context) {
  size_t free = 0;
  size_t total = 0;
  int device = 0;
  if (driver_->memory(&free, &total) != kSuccess || driver_->device(&device) != kSuccess) return nullptr;
  driver::Mapping* const mapping = mapping_for(device);
  Guard hold(lock_);
  if (Pool* pool = pool_of(context)) return pool;
  if (in_flight_.is_off(context)) return nullptr;
  order::Timeline* const order = order_.of(context);
  if (order == nullptr) return nullptr;
  Pool* const rested = rested_pool_locked(device);
  if (rested != nullptr && rested->reopen(context, device, *order)) {
    let_peers_in_locked(*rested);
    return rested;
  }
  for (auto& slot : pools_) {
    if (slot.load(std::memory_order_relaxed) != nullptr) continue;
    if (&slot == pools_.data()) {
      AllThreads::prepare();
      make_thread_key();
    }
    auto* pool = new (std::nothrow) Pool(context, device, total, *driver_, mapping, *order, in_flight_);
    if (pool == nullptr) return nullptr;
    const uint64_t max_cached = max_cached_.load(std::memory_order_relaxed);
    if (max_cached != kFromOptions) pool->tenancy().set_max_cached(max_cached);
    let_peers_in_locked(*pool);
    slot.store(pool, std::memory_order_release);
    return pool;
  }
  return nullptr;
}

driver::Mapping* Pools::mapping_for(int device) {
  driver::Mapping* const mapping = mapping_.load(std::memory_order_acquire);
  if (mapping == nullptr || mapping->can_map(device)) return mapping;
  static constinit log::Once once;
  if (once.first())
    log::line("device {} or its driver cannot map memory: CUPOOL_SEGMENTS=mapped has no effect there",
              device);
  return nullptr;
}

void Pools::stop_mapping() {
  mapping_.store(nullptr, std::memory_order_release);
  for (auto& slot : pools_) {
    if (Pool* const pool = slot.load(std::memory_order_acquire)) pool->segments().stop_mapping();
  }
}

// Nothing is mapped there yet, so the driver is not called.
void Pools::let_peers_in_locked(Pool& pool) {
  for (const Peer& peer : peers_) {
    if (peer.owner == pool.context()) pool.segments().space().allow(peer.guest.device);
  }
}

std::vector<int> Pools::peers_of(driver::Context context) {
  std::vector<int> devices;
  Guard hold(lock_);
  for (const Peer& peer : peers_) {
    if (peer.owner == context) devices.push_back(peer.guest.device);
  }
  return devices;
}

mapped::Part Pools::chunk_at(Address address) {
  Pool* const pool = page_map.pool_of(address);
  return pool == nullptr ? mapped::Part{} : pool->segments().space().chunk_at(address);
}

bool Pools::has_peer_locked(driver::Context owner, int device) const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [&](const Peer& peer) { return peer.owner == owner && peer.guest.device == device; });
}

bool Pools::set_access(driver::Context owner, const Guest& guest, bool allowed) {
  {
    Guard hold(lock_);
    if (allowed) {
      peers_.push_back({owner, guest, 0});
    } else {
      std::erase_if(peers_, [&](const Peer& peer) {
        return peer.owner == owner && peer.guest.context == guest.context && peer.ending == 0;
      });
    }
  }
  return apply_access(owner, guest.device);
}

// Another context of the device may want it, or come to want it meanwhile: who has told the driver looks
// again whether that is still right, so the last one to tell it is.
bool Pools::apply_access(driver::Context owner, int device) {
  const auto is_allowed = [&] {
    Guard hold(lock_);
    return has_peer_locked(owner, device);
  };
  // Meanwhile the owner does not end.
  const InFlight::Call call(in_flight_, owner, InFlight::Kind::kUse);
  Pool* const pool = call.is_open() ? pool_of(owner) : nullptr;
  bool allowed = is_allowed();
  if (pool == nullptr) return allowed;
  for (bool told = !allowed; told != allowed; allowed = is_allowed()) {
    told = allowed;
    if (allowed) {
      pool->segments().space().allow(device);
    } else {
      pool->segments().space().forbid(device);
    }
  }
  return allowed;
}

Pool* Pools::rested_pool_locked(int device) const {
  Pool* oldest = nullptr;
  size_t resting = 0;
  for (const auto& slot : pools_) {
    Pool* const pool = slot.load(std::memory_order_relaxed);
    if (pool == nullptr || pool->tenancy().closed_at() == 0 || pool->tenancy().is_ending() ||
        pool->device() != device)
      continue;
    ++resting;
    if (oldest == nullptr || pool->tenancy().closed_at() < oldest->tenancy().closed_at()) oldest = pool;
  }
  const bool is_full = pools_.back().load(std::memory_order_relaxed) != nullptr;
  return resting > kResting || is_full ? oldest : nullptr;
}

// ---- The end of a context.

void Pools::fail(driver::Context context) {
  Guard hold(lock_);
  if (Pool* pool = pool_of(context)) pool->tenancy().fail();
}

void Pools::shut(driver::Context context) {
  {
    Guard hold(lock_);
    if (Pool* const pool = pool_of(context)) {
      pool->tenancy().fail();
      pool->tenancy().shut();
    }
  }
  AllThreads::order();
}

bool Pools::is_in_use(driver::Context context) {
  for (auto& slot : pools_) {
    Pool* const pool = slot.load(std::memory_order_acquire);
    if (pool != nullptr && pool->tenancy().belongs_to(context) && pool->caches().is_in_use()) return true;
  }
  return false;
}

void Pools::begin_end(driver::Context context, uint64_t ending) {
  // Under the lock, so that the pool is not reopened before it is empty.
  Guard hold(lock_);
  for (auto& slot : pools_) {
    Pool* pool = slot.load(std::memory_order_relaxed);
    if (pool != nullptr && pool->tenancy().belongs_to(context)) pool->close(ending);
  }
  // Work of the context may still use what it has access to.
  for (Peer& peer : peers_) {
    if (peer.ending == 0 && (peer.owner == context || peer.guest.context == context)) peer.ending = ending;
  }
}

void Pools::ended(uint64_t ending, bool gone) {
  const auto is_meant = [&](Pool* pool) {
    Guard hold(lock_);
    return pool->tenancy().closed_at() == ending;
  };
  for (auto& slot : pools_) {
    Pool* const pool = slot.load(std::memory_order_acquire);
    if (pool != nullptr && pool->tenancy().is_ending() && is_meant(pool)) pool->ended(gone);
  }
}

// A context with the same handle may be there again: only what was there before the end goes.
Pools::Lost Pools::end_access(driver::Context context, uint64_t ending, bool gone) {
  Lost all;
  Lost unwanted;
  {
    Guard hold(lock_);
    for (Peer& peer : peers_) {
      if (peer.ending != ending) continue;
      if (peer.owner != context) all.emplace_back(peer.owner, peer.guest.device);
      if (!gone) peer.ending = 0;
    }
    std::erase_if(peers_, [&](const Peer& peer) { return peer.ending == ending; });
    for (const auto& [owner, device] : all) {
      if (!has_peer_locked(owner, device)) unwanted.emplace_back(owner, device);
    }
  }
  Lost lost;
  for (const auto& [owner, device] : unwanted) {
    if (!apply_access(owner, device)) lost.emplace_back(owner, device);
  }
  return lost;
}

// ---- For all pools, or the one that has an address.

bool Pools::owns(Address address) { return page_map.is_ours(address); }

bool Pools::find(Address address, Held* out) {
  Pool* const pool = page_map.pool_of(address);
  if (pool == nullptr || !pool->inventory().find(address, out)) return false;
  if (!out->leaving) return true;
  pool->give_reached();
  return pool->inventory().find(address, out);
}

bool Pools::visit_mark(Address address, void (*visit)(Mark&, void*), void* data) {
  Pool* const pool = page_map.pool_of(address);
  return pool != nullptr && pool->marks().visit(address, visit, data);
}

bool Pools::taint(Address address, uint64_t, Taint reason) {
  Pool* const pool = page_map.pool_of(address);
  return pool != nullptr && pool->marks().taint(address, reason);
}

bool Pools::device_of(driver::Context context, int* device) {
  const Pool* const pool = pool_of(context);
  if (pool != nullptr) *device = pool->device();
  return pool != nullptr;
}

uint64_t Pools::release_everything(int device, allocator::Effort effort) {
  uint64_t released = 0;
  for_each([&](Pool& pool) {
    const bool is_meant = device == allocator::kEveryDevice || device == pool.device();
    if (is_meant) released += pool.release_everything(effort);
  });
  return released;
}

uint64_t Pools::most_releasable(int device, uint64_t) {
  uint64_t bytes = 0;
  for_each([&](Pool& pool) {
    if (device != allocator::kEveryDevice && device != pool.device()) return;
    pool.give_reached();
    bytes += pool.segments().most_releasable();
  });
  return bytes;
}

uint64_t Pools::releasable_bytes(int device) {
  uint64_t bytes = 0;
  for_each([&](Pool& pool) {
    if (device != pool.device()) return;
    pool.give_reached();
    bytes += pool.segments().releasable_bytes();
  });
  return bytes;
}

uint64_t Pools::trim(uint64_t keep) {
  uint64_t released = 0;
  for_each([&](Pool& pool) { released += pool.trim(keep); });
  return released;
}

void Pools::set_max_cached(uint64_t bytes) {
  max_cached_.store(bytes, std::memory_order_relaxed);
  for_each([&](Pool& pool) { pool.tenancy().set_max_cached(bytes); });
}

uint64_t Pools::release_idle(const allocator::Idle& which) {
  uint64_t released = 0;
  for_each([&](Pool& pool) { released += pool.release_idle(which); });
  return released;
}

uint64_t Pools::largest_free(int device, bool wait) {
  uint64_t largest = 0;
  for_each([&](Pool& pool) {
    if (pool.device() == device) largest = std::max(largest, pool.ranges().largest_free(wait));
  });
  return largest;
}

void Pools::forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  lock_.reset_after_fork();
  this_thread = {};
  for (auto& slot : pools_) slot.store(nullptr, std::memory_order_relaxed);
  peers_.clear();
  page_map.forget_after_fork();
}

}  // namespace cupool::pool
