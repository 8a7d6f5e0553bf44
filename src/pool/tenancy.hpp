// Whose memory a pool has: the context it serves, with its device and its timeline, the way to the driver,
// and the user's settings for that device. A record outlives its context: it is closed when the context
// ends, and reopened for another one of the same device. No lock: words that every call reads; the thread
// that closes or reopens holds the lock of all pools.
#pragma once

#include <atomic>

#include "context/in_flight.hpp"
#include "driver/driver.hpp"
#include "driver/source.hpp"
#include "order/timeline.hpp"
#include "pool/settings.hpp"
#include "pool/thread_cache.hpp"
#include "stats/device.hpp"
#include "upstream/upstream.hpp"

namespace cupool::pool {

using context::InFlight;

class Tenancy {
 public:
  Tenancy(driver::Context context, int device, uint64_t device_bytes, driver::Driver& driver,
          driver::Source& source, order::Timeline& order, InFlight& in_flight)
      : context_(context),
        device_(device),
        stats_(stats::device(device)),
        device_bytes_(device_bytes),
        order_(&order),
        settings_(Settings::from(config::options(), device_bytes)),
        driver_(driver),
        upstream_(source, device, settings_.limit),
        in_flight_(in_flight) {
    set_max_cached(settings_.max_cached);
  }

  // Null once it is closed.
  driver::Context context() const { return context_.load(std::memory_order_relaxed); }
  order::Timeline& order() const { return *order_.load(std::memory_order_relaxed); }
  int device() const { return device_; }
  uint64_t device_bytes() const { return device_bytes_; }
  stats::Device& stats() const { return stats_; }
  const Settings& settings() const { return settings_; }
  upstream::Upstream& upstream() { return upstream_; }
  driver::Driver& driver() const { return driver_; }
  InFlight& in_flight() const { return in_flight_; }

  // How many free bytes the user wants kept at most.
  uint64_t max_cached() const { return max_cached_.load(std::memory_order_relaxed); }
  // The largest block of which a thread keeps one. 0 if the user limits what is cached: such a block would
  // escape the limits.
  uint64_t most_kept_large() const { return most_kept_large_.load(std::memory_order_relaxed); }
  void set_max_cached(uint64_t bytes) {
    max_cached_.store(bytes, std::memory_order_relaxed);
    const bool keeps = settings_.thread_cache != 0 && bytes > ThreadCache::kLargestKept;
    most_kept_large_.store(keeps ? ThreadCache::kLargestKept : 0, std::memory_order_relaxed);
  }

  // Scope of a slow allocation, until the application has the block, or of a slow free: meanwhile the context
  // does not end.
  class Use {
   public:
    Use(const Tenancy& tenancy, ThreadCache& cache) : cache_(cache) {
      // The closing thread mirrors this store and load: at least one side sees the other.
      cache_.begin_use();
      open_ = tenancy.context_.load(std::memory_order_acquire) != nullptr;
    }
    ~Use() { cache_.end_use(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    // False: the context has ended, or is about to.
    bool is_open() const { return open_; }

   private:
    ThreadCache& cache_;
    bool open_;
  };

  // The context has failed, but the program still holds it: from now on the driver answers. Other threads may
  // be in the pool right now, so all records stay until close().
  void fail() {
    failed_.store(context_.exchange(nullptr, std::memory_order_relaxed), std::memory_order_relaxed);
  }
  // Whether this pool serves `context`, or served it until the context failed.
  bool belongs_to(driver::Context context) const {
    return context_.load(std::memory_order_relaxed) == context ||
           failed_.load(std::memory_order_relaxed) == context;
  }
  // The context is ending: no thread enters the pool from now on.
  void shut() { context_.store(nullptr, std::memory_order_seq_cst); }
  // The pool has dropped its records. `number` rises with every closed pool.
  void close(uint64_t number) {
    failed_.store(nullptr, std::memory_order_relaxed);
    is_ending_.store(true, std::memory_order_relaxed);
    closed_at_ = number;
  }
  // The `number` given to close(); 0: not closed.
  uint64_t closed_at() const { return closed_at_; }
  // From close() until the driver has ended the context.
  bool is_ending() const { return is_ending_.load(std::memory_order_acquire); }
  void note_ended() { is_ending_.store(false, std::memory_order_release); }
  // pre: closed.
  void reopen(driver::Context context, order::Timeline& order) {
    closed_at_ = 0;
    order_.store(&order, std::memory_order_relaxed);
    context_.store(context, std::memory_order_relaxed);
  }

 private:
  std::atomic<driver::Context> context_;
  std::atomic<driver::Context> failed_{nullptr};
  uint64_t closed_at_ = 0;  // under the lock of all pools
  const int device_;
  stats::Device& stats_;
  const uint64_t device_bytes_;
  std::atomic<order::Timeline*> order_;
  std::atomic<uint64_t> max_cached_{0};
  std::atomic<uint64_t> most_kept_large_{0};
  const Settings settings_;
  driver::Driver& driver_;
  upstream::Upstream upstream_;
  InFlight& in_flight_;
  std::atomic<bool> is_ending_{false};
};

}  // namespace cupool::pool
