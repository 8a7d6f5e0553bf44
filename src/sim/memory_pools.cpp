// How pools give and take. Memory of cuMemAlloc may be freed in stream order too: it goes back to the device
// when its free runs, which is a moment the driver itself sees, so later submissions come after it.
// Under the state mutex.
#include "sim/memory_pools.hpp"

#include <algorithm>
#include <utility>

#include "sim/capture.hpp"
#include "sim/lives.hpp"
#include "sim/scheduler.hpp"
#include "sim/state.hpp"

namespace cupool::sim {
namespace {

std::shared_ptr<Work> ordered_point(const char* what) {
  auto work = std::make_shared<Work>();
  work->what = what;
  return work;
}

void account(MemPool& pool, std::int64_t used_change, std::int64_t reserved_change) {
  pool.used = static_cast<std::uint64_t>(static_cast<std::int64_t>(pool.used) + used_change);
  pool.reserved = static_cast<std::uint64_t>(static_cast<std::int64_t>(pool.reserved) + reserved_change);
  pool.used_high = std::max(pool.used_high, pool.used);
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
}

// Cached memory of the right size: what the stream is already ordered after first, then what is finished,
// then what a dependency would make safe.
std::vector<CachedMemory>::iterator pick(MemPool& pool, const Stream& stream, std::uint64_t granules,
                                         bool any) {
  VectorClock known = stream.clock;
  known.join(state().host);
  auto& cached = pool.cached;
  const auto fits = [&](const CachedMemory& c) { return c.granules == granules; };
  auto found = std::find_if(cached.begin(), cached.end(),
                            [&](const auto& c) { return fits(c) && c.after.within(known); });
  if (found != cached.end()) return found;
  if (pool.opportunistic != 0) {
    found =
        std::find_if(cached.begin(), cached.end(), [&](const auto& c) { return fits(c) && done(c.after); });
    if (found != cached.end()) return found;
  }
  if (pool.internal_dependencies == 0 || !any) return cached.end();
  return std::find_if(cached.begin(), cached.end(), fits);
}

CUdeviceptr fresh_memory(MemPool& pool, std::uint64_t granules) {
  Arena& arena = state().arena(pool.device);
  CUdeviceptr base = arena.take(granules, false);
  if (base != 0) return base;
  // Full: what lies idle in this pool makes room.
  trim_pool(pool, 0);
  return arena.take(granules, false);
}

}  // namespace

std::shared_ptr<MemPool> make_pool(int device) {
  auto pool = std::make_shared<MemPool>();
  pool->device = device;
  pool->handle = state().pools.insert(pool);
  return pool;
}

std::shared_ptr<MemPool> default_pool(int device) {
  Device& d = state().devices[static_cast<std::size_t>(device)];
  if (d.default_pool == nullptr) {
    const auto pool = make_pool(device);
    pool->is_default = true;
    d.default_pool = pool->handle;
    if (d.current_pool == nullptr) d.current_pool = pool->handle;
  }
  return state().pools.find(d.default_pool);
}

std::shared_ptr<MemPool> current_pool(int device) {
  const auto fallback = default_pool(device);
  const auto pool = state().pools.find(state().devices[static_cast<std::size_t>(device)].current_pool);
  return pool != nullptr ? pool : fallback;
}

CUresult pool_allocate(MemPool& pool, const StreamPtr& stream, std::uint64_t bytes, CUdeviceptr* out) {
  State& s = state();
  ++s.counters.alloc_calls;
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > s.arena(pool.device).capacity()) return CUDA_ERROR_OUT_OF_MEMORY;
  if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::uint64_t granules = granules_for(bytes);
  Allocation made;
  VectorClock after;
  auto found = pick(pool, *stream, granules, s.chance(50));
  if (found == pool.cached.end()) {
    made.base = fresh_memory(pool, granules);
    if (made.base != 0) {
      account(pool, 0, static_cast<std::int64_t>(granules * kGranule));
    } else {
      found = pick(pool, *stream, granules, true);
      if (found == pool.cached.end()) {
        note_refusal();
        return CUDA_ERROR_OUT_OF_MEMORY;
      }
    }
  }
  if (made.base == 0) {
    made.base = found->base;
    after = present_origin().added ? found->after.added() : found->after;
    if (done(found->after)) s.added_waits.seen_done(found->after);
    pool.cached.erase(found);
  }
  made.size = bytes;
  made.granules = granules;
  made.kind = MemoryKind::kPooled;
  made.context_id = stream->context->id;
  made.context = stream->context->handle;
  made.device = pool.device;
  made.pool = pool.handle;
  account(pool, static_cast<std::int64_t>(bytes), 0);
  enqueue(stream, ordered_point("allocation"), after);
  own_life_begins(*s.allocations.adopt(made), "cuMemAllocAsync");
  s.note_usage();
  *out = made.base;
  return CUDA_SUCCESS;
}

void return_to_pool(const Allocation& allocation, const VectorClock& after) {
  State& s = state();
  const Allocation gone = allocation;
  s.allocations.forget(gone.base);
  const auto pool = s.pools.find(gone.pool);
  if (pool == nullptr) {
    // The pool was destroyed before its memory: the device takes it.
    complete(after);
    s.arena(gone.device).give(gone.base, gone.granules, false);
    return;
  }
  account(*pool, -static_cast<std::int64_t>(gone.size), 0);
  pool->cached.push_back(CachedMemory{gone.base, gone.granules, after});
}

CUresult pool_free(const StreamPtr& stream, CUdeviceptr p) {
  State& s = state();
  ++s.counters.free_calls;
  // Asked of an H200: refused before the address is looked at.
  if (stream->capture == nullptr) {
    const CUresult allowed = check_unsafe_call();
    if (allowed != CUDA_SUCCESS) return allowed;
  }
  if (p == 0) return CUDA_SUCCESS;
  Allocation* const known = s.allocations.exact(p);
  if (known == nullptr || known->is_leaving) return CUDA_ERROR_INVALID_VALUE;
  // What no stream-ordered allocation made cannot become a node; the capture goes on (asked of an H200).
  if (stream->capture != nullptr)
    return known->kind == MemoryKind::kPooled ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                              : CUDA_ERROR_INVALID_VALUE;
  if (known->kind == MemoryKind::kPooled) {
    own_life_ends(*known, "cuMemFreeAsync");
    enqueue(stream, ordered_point("stream-ordered free"));
    return_to_pool(*known, stream->clock);
    return CUDA_SUCCESS;
  }
  if (known->kind != MemoryKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  known->is_leaving = true;
  auto clock = std::make_shared<VectorClock>();
  auto work = ordered_point("stream-ordered free");
  work->run = [p, clock] {
    // (Its context may have ended.)
    const Allocation* const left = state().allocations.exact(p);
    if (left != nullptr && left->is_leaving) {
      own_life_ends(*left, "cuMemFreeAsync");
      state().allocations.destroy(p);
    }
    host_saw(*clock);
    return CUDA_SUCCESS;
  };
  enqueue(stream, std::move(work));
  *clock = stream->clock;
  return CUDA_SUCCESS;
}

void trim_pool(MemPool& pool, std::uint64_t keep) {
  State& s = state();
  auto& cached = pool.cached;
  for (auto one = cached.begin(); one != cached.end() && pool.reserved > keep;) {
    if (!done(one->after)) {
      ++one;
      continue;
    }
    host_saw(one->after);
    s.arena(pool.device).give(one->base, one->granules, false);
    account(pool, 0, -static_cast<std::int64_t>(one->granules * kGranule));
    one = cached.erase(one);
  }
  s.note_usage();
}

void trim_pools_after_wait() {
  state().pools.each([](const std::shared_ptr<MemPool>& pool) { trim_pool(*pool, pool->release_threshold); });
}

}  // namespace cupool::sim
