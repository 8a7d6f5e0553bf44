// The driver's pool for one context: the pool, the stream on which it allocates, the stream on which it
// frees, their events, and what the settings say of it. Filled once, by whoever makes it, before another
// thread sees it; from then on only its atomics change, and `seen`, which the ledger's lock guards. The
// record stays when its context ends, because blocks of it may.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/bytes.hpp"
#include "driver/driver.hpp"
#include "driver/native_driver.hpp"
#include "stats/device.hpp"

namespace cupool::native {

struct ContextPool {
  // Of `context`, the current one. Null: the driver would not make one, or there is no host memory.
  static ContextPool* make(driver::Driver& driver, driver::NativeDriver& native, driver::Context context);
  // Nothing was allocated from it. Its streams and events die with the context.
  static void discard(driver::NativeDriver& native, ContextPool* pool);

  driver::Context context = nullptr;
  int device = 0;
  driver::MemoryPool pool = nullptr;
  driver::Stream allocates = nullptr;
  driver::Stream frees = nullptr;
  driver::Event allocated = nullptr;
  driver::Event freed = nullptr;
  driver::Event drained = nullptr;  // behind all frees, for the thread of another context that waits for them
  std::atomic<bool> is_awaited{false};  // by such a thread
  bool was_in_vain = false;             // the last such wait ended too early; for who has set is_awaited
  uint64_t max_bytes = 0;               // CUPOOL_NATIVE_MAX; 0: none
  uint64_t limit = kUnlimited;
  bool free_waits = false;
  stats::ThreadTally* tally = nullptr;
  std::atomic<uint64_t> live{0};
  std::atomic<uint64_t> frees_made{0};
  // At the last look for idle memory: how many frees there had been, and since when.
  std::atomic<uint64_t> frees_seen{0};
  std::atomic<uint64_t> same_since_ms{0};
  driver::NativeUsage seen;  // the driver's last answer

 private:
  bool fill(driver::Driver& driver, driver::NativeDriver& native);
};

}  // namespace cupool::native
