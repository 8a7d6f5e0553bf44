// A second thread of a test, of which the first can tell that it stands. Everything under src/ that waits for
// another thread calls sched_yield() again and again, at least at first (base/lock.hpp); the unit tests have
// their own, which counts. So a test goes on when the other thread is over or stands, and cannot pass because
// that one was slow, nor fail because it was. The other's own steps must not wait by yielding while it is
// asked about.
#pragma once

#include <pthread.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>
#include <utility>

namespace cupool::test {

// Where this thread counts; null: it does not.
inline constinit thread_local std::atomic<unsigned>* yields_of_this_thread = nullptr;

class CountYields {
 public:
  explicit CountYields(std::atomic<unsigned>* where) { yields_of_this_thread = where; }
  ~CountYields() { yields_of_this_thread = nullptr; }
  CountYields(const CountYields&) = delete;
  CountYields& operator=(const CountYields&) = delete;
};

class OtherThread {
 public:
  explicit OtherThread(std::function<void()> steps) : steps_(std::move(steps)) {
    if (pthread_create(&thread_, nullptr, &run, this) != 0) FAIL("no second thread");
  }
  ~OtherThread() { join(); }
  OtherThread(const OtherThread&) = delete;
  OtherThread& operator=(const OtherThread&) = delete;

  // Goes on when the thread waits for another, which is us; false: it has ended, with all that its end does.
  bool stands() {
    const unsigned before = yields_.load();
    while (!is_over() && yields_.load() - before < kTurns) std::this_thread::yield();
    return !is_over_;
  }
  void join() {
    if (!is_over_) pthread_join(thread_, nullptr);
    is_over_ = true;
  }

 private:
  // More than one: who looks only once does not wait.
  static constexpr unsigned kTurns = 3;

  static void* run(void* self) {
    auto& other = *static_cast<OtherThread*>(self);
    yields_of_this_thread = &other.yields_;
    other.steps_();
    return nullptr;
  }
  bool is_over() {
    if (!is_over_) is_over_ = pthread_tryjoin_np(thread_, nullptr) == 0;
    return is_over_;
  }

  const std::function<void()> steps_;
  std::atomic<unsigned> yields_{0};
  pthread_t thread_{};
  bool is_over_ = false;
};

}  // namespace cupool::test
