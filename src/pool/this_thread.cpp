// See this_thread.hpp.
#include "pool/this_thread.hpp"

#include <pthread.h>

#include <atomic>

#include "pool/pool.hpp"
#include "trace/recorder.hpp"

namespace cupool::pool {

constinit thread_local ThisThread this_thread;

namespace {

// May fail if the program has used up all keys.
constinit pthread_key_t thread_key = 0;
constinit std::atomic<bool> has_thread_key{false};
void on_thread_end(void*) { end_this_thread(); }

}  // namespace

void prepare_thread_ends() {
  if (has_thread_key.load(std::memory_order_relaxed)) return;
  has_thread_key.store(pthread_key_create(&thread_key, on_thread_end) == 0, std::memory_order_release);
}

ThreadCache* cache_of_this_thread(Pool& pool) {
  for (ThreadCache* cache = this_thread.all; cache != nullptr; cache = cache->next_of_thread) {
    if (cache->pool() == &pool) return this_thread.last = cache;
  }
  ThreadCache* cache = pool.caches().adopt();
  if (cache == nullptr) return nullptr;
  cache->next_of_thread = this_thread.all;
  this_thread.all = this_thread.last = cache;
  const bool announced =
      has_thread_key.load(std::memory_order_acquire) && pthread_setspecific(thread_key, &this_thread) == 0;
  if (!announced) this_thread.unannounced = true;
  return cache;
}

void end_this_thread() {
  ThreadCache* cache = this_thread.all;
  // Destructors of other keys may still use CUDA, and ours may not be called again.
  this_thread = {.unannounced = true};
  if (trace::is_on() && cache != nullptr) {
    uint64_t caches = 0;
    for (const ThreadCache* one = cache; one != nullptr; one = one->next_of_thread) ++caches;
    trace::record_inside(trace::told::ThreadEnded{caches});
  }
  while (cache != nullptr) {
    ThreadCache* next = cache->next_of_thread;
    cache->pool()->caches().abandon(cache);
    cache = next;
  }
}

}  // namespace cupool::pool
