// What becomes of the native pool's memory when its context ends: set aside before the driver acts, freed
// when it has. Holds no lock across a call of the driver.
#include <sched.h>

#include <algorithm>
#include <iterator>

#include "pool/native.hpp"

namespace cupool::pool {

using driver::kSuccess;

uint64_t Native::close(driver::Context context) {
  Source* source = nullptr;
  uint64_t ending = 0;
  {
    Guard hold(lock_);
    source = find_source(context);
    if (source == nullptr) return 0;
    ending = ++endings_;
    Orphans left{ending, source, {}, {}};
    for (auto block = blocks_.begin(); block != blocks_.end();) {
      const bool theirs = block->second.source == source;
      if (theirs) left.blocks.emplace_back(block->first, block->second.bytes);
      block = theirs ? blocks_.erase(block) : std::next(block);
    }
    for (const auto& [address, from] : deferred_) {
      if (from == source) left.deferred.push_back(address);
    }
    std::erase_if(deferred_, [&](const auto& one) { return one.second == source; });
    std::erase(sources_, source);
    orphans_.push_back(std::move(left));
  }
  // A thread that frees for this one, with streams and events that end with the context: the address could
  // be somebody else's before its call is made.
  while (source->freeing.load(std::memory_order_acquire) != 0) sched_yield();
  remember(*source);
  return ending;
}

// Its peaks outlive it. Where the driver says nothing of it any more, those that were seen last.
void Native::remember(const Source& source) {
  driver::NativeUsage last;
  const bool known = native_.usage(source.pool, &last) == kSuccess;
  Guard hold(lock_);
  if (!known) last = source.seen;
  driver::NativeUsage& past = past_[source.device];
  past.peak_used = std::max(past.peak_used, last.peak_used);
  past.peak_reserved = std::max(past.peak_reserved, last.peak_reserved);
}

void Native::closed(uint64_t ending, bool gone) {
  Source* source = nullptr;
  bool empty = false;
  {
    Guard hold(lock_);
    const auto found = std::find_if(orphans_.begin(), orphans_.end(),
                                    [&](const Orphans& one) { return one.ending == ending; });
    if (found == orphans_.end()) return;
    source = found->source;
    found->gone = gone;
    empty = gone && found->blocks.empty() && found->deferred.empty();
    if (gone) {
      live_.fetch_sub(source->live.load(std::memory_order_relaxed), std::memory_order_relaxed);
      if (source->holdings != nullptr) source->holdings->drop();
    } else {
      restore(*found);
    }
    if (empty || !gone) orphans_.erase(found);
  }
  if (!gone) order_.join(source->context);
  if (empty) retire(*source);
}

void Native::restore(const Orphans& orphans) {
  sources_.push_back(orphans.source);
  for (const auto& [address, bytes] : orphans.blocks) blocks_[address] = {orphans.source, bytes};
  for (const Address address : orphans.deferred) deferred_.emplace_back(address, orphans.source);
  if (!deferred_.empty()) has_deferred_.store(true, std::memory_order_relaxed);
}

void Native::retire(const Source& source) {
  remember(source);
  native_.destroy_pool(source.pool);
}

// The memory is the device's, not the context's, and outlives it. Only when the context is gone is it
// certain that all its work is over and that the program uses the memory no more.
void Native::free_orphans(Source& source) {
  std::vector<Orphans> now;
  {
    Guard hold(lock_);
    const auto theirs = std::stable_partition(orphans_.begin(), orphans_.end(), [&](const Orphans& one) {
      return !one.gone || one.source->device != source.device;
    });
    now.assign(std::make_move_iterator(theirs), std::make_move_iterator(orphans_.end()));
    orphans_.erase(theirs, orphans_.end());
  }
  for (const Orphans& one : now) {
    // A driver that took it back with its context may have given the address to somebody else.
    const auto free = [&](Address address) {
      if (native_.pool_of(address) == one.source->pool) native_.free_on(source.frees, address);
    };
    for (const auto& [address, bytes] : one.blocks) free(address);
    for (const Address address : one.deferred) free(address);
    retire(*one.source);
  }
}

}  // namespace cupool::pool
