// How much device memory the pool needs where a copy on a side stream overlaps a training: a prefetcher as it
// ran on an H200 (tests/data), with its threads and times, on a device that takes its time.
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

// A thread of the program, which runs what it is told while the caller waits.
class Worker {
 public:
  ~Worker() {
    run({});
    thread_.join();
  }
  // Empty: the thread ends.
  void run(std::function<void()> job) {
    std::unique_lock<std::mutex> hold(lock_);
    job_ = std::move(job);
    is_due_ = true;
    changed_.notify_all();
    changed_.wait(hold, [&] { return !is_due_; });
  }

 private:
  void live() {
    std::unique_lock<std::mutex> hold(lock_);
    for (bool ends = false; !ends;) {
      changed_.wait(hold, [&] { return is_due_; });
      ends = !job_;
      if (!ends) job_();
      is_due_ = false;
      changed_.notify_all();
    }
  }

  std::mutex lock_;
  std::condition_variable changed_;
  std::function<void()> job_;
  bool is_due_ = false;
  std::thread thread_{[this] { live(); }};
};

// Microseconds that a piece of work takes.
struct Costs {
  uint64_t kernel;                 // on a large block
  uint64_t copy;                   // the first of the side stream's pieces of work on each batch
  uint64_t side = 50, small = 10;  // others
};

class TimedReplay : PoolWorld {
 public:
  enum class Segments { kDriver, kMapped };
  explicit TimedReplay(const Costs& costs, Segments segments = Segments::kDriver) : costs_(costs) {
    if (segments == Segments::kMapped) use_mapped();
    driver.on_query = [this] { end_what_is_due(); };
  }
  struct Figures {
    uint64_t reserved = 0;  // at the most
    uint64_t stalled = 0;   // microseconds that one stream waited for the other because of us
  };
  Figures run(const char* trace) {
    const std::string command = std::string("gzip -dc '" CUPOOL_TEST_DATA "/") + trace + ".trace.gz'";
    const std::unique_ptr<FILE, int (*)(FILE*)> input(popen(command.c_str(), "r"), pclose);
    REQUIRE(input != nullptr);
    char line[128];
    while (fgets(line, sizeof line, input.get()) != nullptr) step(line);
    REQUIRE(allocations_ == 1890);
    check_records();
    return {driver.peak, stalled_};
  }

 private:
  static constexpr size_t kMain = 0, kSide = 1;
  static constexpr unsigned kPiecesOfABatch = 4;

  void step(const char* line) {
    char kind = 0;
    long first = 0;
    unsigned long numbers[3] = {};  // bytes of an allocation; thread; microseconds
    const bool has_bytes = line[0] == 'a';
    const int read =
        has_bytes ? sscanf(line, "%c %ld %lu %lu %lu", &kind, &first, &numbers[0], &numbers[1], &numbers[2])
                  : sscanf(line, "%c %ld %lu %lu", &kind, &first, &numbers[1], &numbers[2]);
    REQUIRE(read == (has_bytes ? 5 : 4));
    now_ = std::max(now_, numbers[2] + delay_);
    const auto on_its_thread = [&](auto&& job) {
      if (numbers[1] == 0) {
        job();
      } else {
        worker_.run(job);
      }
    };
    if (kind == 'a') {
      driver::Address address = 0;
      on_its_thread([&] { address = allocate(numbers[0]); });
      held_[first] = address;
      is_large_ = numbers[0] >= 4 * kMiB;
      ++allocations_;
    } else if (kind == 'f') {
      on_its_thread([&] { free(held_.at(first)); });
    } else if (kind == 'k') {
      submit(static_cast<size_t>(first), on_its_thread);
    } else {
      wait_for_all();
    }
    end_what_is_due();
  }
  template <typename On>
  void submit(size_t stream, On&& on_its_thread) {
    const uint64_t waits = driver.waits;
    on_its_thread([&] { work(stream == kMain ? kS : kT); });
    const uint64_t begin = std::max(ends_[stream], now_);
    if (driver.waits != waits && ends_[1 - stream] > begin) {
      stalled_ += ends_[1 - stream] - begin;
      ends_[stream] = ends_[1 - stream];
    }
    const bool is_copy = stream == kSide && pieces_++ % kPiecesOfABatch == 0;
    const uint64_t takes = is_copy           ? costs_.copy
                           : stream == kSide ? costs_.side
                           : is_large_       ? costs_.kernel
                                             : costs_.small;
    ends_[stream] = std::max(ends_[stream], now_) + takes;
    is_large_ = false;
  }
  void wait_for_all() {
    const uint64_t end = std::max(ends_[kMain], ends_[kSide]);
    if (end > now_) {
      delay_ += end - now_;
      now_ = end;
    }
    const order::Epoch epoch = time().begin_wait(order::Lane::kMany);
    driver.finish();
    due_.clear();
    recorded_ = driver.records;
    time().end_wait(epoch, true);
  }
  // An event is done when all that was submitted before it is.
  void end_what_is_due() {
    for (; recorded_ < driver.records; ++recorded_) due_.push_back(std::max(ends_[kMain], ends_[kSide]));
    for (; !due_.empty() && due_.front() <= now_; due_.pop_front()) driver.finish_oldest();
  }

  const Costs costs_;
  Worker worker_;
  std::unordered_map<long, driver::Address> held_;
  std::deque<uint64_t> due_;  // when the events that are not done will be
  uint64_t recorded_ = 0, allocations_ = 0, stalled_ = 0;
  uint64_t now_ = 0, delay_ = 0;  // of the host, against the times in the trace
  uint64_t ends_[2] = {};         // when each stream has done its work
  unsigned pieces_ = 0;
  bool is_large_ = false;
};

}  // namespace

TEST_CASE("a prefetcher needs less memory than under PyTorch's own cache, however long its copies take") {
  constexpr uint64_t kPytorch = 985 * kMiB;
  const uint64_t kernel = GENERATE(20u, 50u, 80u, 120u);
  const uint64_t copy = GENERATE(300u, 1250u, 2000u, 3000u);
  CAPTURE(kernel, copy);
  CHECK(TimedReplay({kernel, copy}).run("prefetch64-timed").reserved < kPytorch);
}

TEST_CASE("with mapped segments a prefetcher needs less memory still, and waits for its copies as rarely") {
  const uint64_t kernel = GENERATE(50u, 80u);
  const uint64_t copy = GENERATE(300u, 1250u, 2000u);
  CAPTURE(kernel, copy);
  const auto driver = TimedReplay({kernel, copy}).run("prefetch64-timed");
  const auto mapped = TimedReplay({kernel, copy}, TimedReplay::Segments::kMapped).run("prefetch64-timed");
  CHECK(mapped.reserved < driver.reserved);
  // Of 48 copies; with the driver's segments the first ones are waited for, until there is more memory.
  CHECK(mapped.stalled <= driver.stalled + 5 * copy);
}
