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
#include <utility>
#include <vector>

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

enum class Segments { kDriver, kMapped };
// As they were, or four times as large and as slow.
enum class Batches { k64MiB, k256MiB };
// As it was, waiting for the device every four steps; or never, as far ahead as the queue lets it.
enum class Host { kWaits, kIsAhead };

// What it holds in a pause, and ever after.
enum class Holds { kModel, kNothing };

// Microseconds that a piece of work takes.
struct Costs {
  uint64_t kernel;                 // on a large block
  uint64_t copy;                   // the first of the side stream's pieces of work on each batch
  uint64_t side = 50, small = 10;  // others
};

// Two streams that take their time. An event is done when all that was submitted before it is.
class TimedDriver : public FakeDriver {
 public:
  static constexpr size_t kMain = 0, kSide = 1;
  static constexpr size_t kQueue = 1020;
  static constexpr order::Lane kLanes[] = {kS, kT};

  uint64_t now = 0;
  uint64_t stalled = 0;  // by waits of ours
  bool ignores_waits = false;

  // Work that takes so long. If the queue is full, the host waits until there is room.
  void run(size_t stream, uint64_t takes) {
    std::deque<uint64_t>& queue = queues_[stream];
    while (!queue.empty() && queue.front() <= now) queue.pop_front();
    if (queue.size() >= kQueue) now = queue.front();
    ends_[stream] = std::max(ends_[stream], now) + takes;
    queue.push_back(ends_[stream]);
  }
  // The program lets the training wait for the batch.
  void wait_for_side() { ends_[kMain] = std::max(ends_[kMain], ends_[kSide]); }
  uint64_t end() const { return std::max(ends_[kMain], ends_[kSide]); }

  driver::Status record(driver::Context context, driver::Event event) override {
    done_at_[event] = end();
    return FakeDriver::record(context, event);
  }
  driver::Status query(driver::Event event) override {
    return done_at_.at(event) <= now ? driver::kSuccess : driver::kNotReady;
  }
  driver::Status wait_on(driver::Stream stream, driver::Event event) override {
    uint64_t& end = ends_[reinterpret_cast<driver::Stream>(kT) == stream ? kSide : kMain];
    const uint64_t begin = std::max(end, now);
    const uint64_t until = ignores_waits ? begin : std::max(begin, done_at_.at(event));
    stalled += until - begin;
    end = until;
    return FakeDriver::wait_on(stream, event);
  }

 private:
  std::unordered_map<driver::Event, uint64_t> done_at_;
  uint64_t ends_[2] = {};
  std::deque<uint64_t> queues_[2];  // when each piece of work ends
};

class TimedReplay : BasicPoolWorld<TimedDriver> {
 public:
  explicit TimedReplay(const Costs& costs, Segments segments = Segments::kDriver,
                       Batches batches = Batches::k64MiB, Host host = Host::kWaits)
      : costs_(costs), batches_(batches), host_(host) {
    if (segments == Segments::kMapped) use_mapped();
  }
  struct Figures {
    uint64_t reserved = 0;  // at the most
    uint64_t stalled = 0;   // microseconds that a stream waited because of us
    uint64_t took = 0;      // microseconds until all is done
    // In the last three quarters.
    uint64_t late_maps = 0, late_took = 0;
  };
  // Again: with what the program holds in the pause, and since it began.
  Figures run(const char* trace) {
    allocations_ = 0;
    pieces_ = 0;
    delay_ = driver.now;
    const std::string command = std::string("gzip -dc '" CUPOOL_TEST_DATA "/") + trace + ".trace.gz'";
    const std::unique_ptr<FILE, int (*)(FILE*)> input(popen(command.c_str(), "r"), pclose);
    REQUIRE(input != nullptr);
    char line[128];
    while (fgets(line, sizeof line, input.get()) != nullptr) step(line);
    REQUIRE(allocations_ == kAllocations);
    check_records();
    return {driver.peak, driver.stalled, driver.end(), mapping.maps - early_maps_, driver.end() - early_end_};
  }

  // As if the device knew which work needs not wait.
  void ignore_waits() { driver.ignores_waits = true; }

  // Nothing happens for so long that idle memory goes back.
  void pause(Holds holds) {
    wait_for_all();
    const auto held = std::exchange(held_, {});
    if (holds == Holds::kNothing) {
      for (const auto& [name, block] : held) free(block);
    }
    const uint64_t idle = pool().ranges().bytes().free();
    pool().release_idle({});
    REQUIRE(pool().ranges().bytes().free() <= (holds == Holds::kNothing ? 0 : idle / 4));
  }

 private:
  static constexpr unsigned kPiecesOfABatch = 4;
  static constexpr uint64_t kAllocations = 1890;
  static constexpr uint64_t kFirst = 8;  // before the training

  void step(const char* line) {
    char kind = 0;
    long first = 0;
    unsigned long bytes = 0, thread = 0, microseconds = 0;
    const int read = line[0] == 'a'
                         ? sscanf(line, "%c %ld %lu %lu %lu", &kind, &first, &bytes, &thread, &microseconds)
                         : sscanf(line, "%c %ld %lu %lu", &kind, &first, &thread, &microseconds);
    REQUIRE(read == (line[0] == 'a' ? 5 : 4));
    const uint64_t due = microseconds + delay_;
    if (driver.now > due) delay_ += driver.now - due;
    driver.now = std::max(driver.now, due);
    const auto on_its_thread = [&](auto&& job) {
      if (thread == 0) {
        job();
      } else {
        worker_.run(job);
      }
    };
    if (batches_ == Batches::k256MiB) {
      // The work space of the matrix products hardly grows.
      if (bytes == 128 * kMiB) bytes += 4 * kMiB;
      if (bytes == 64 * kMiB) bytes *= 4;
    }
    if (kind == 'a') {
      on_its_thread([&] { held_[first] = allocate(bytes); });
      is_large_ = bytes >= 4 * kMiB;
      if (++allocations_ == kAllocations / 4) {
        early_maps_ = mapping.maps;
        early_end_ = driver.end();
      }
    } else if (kind == 'f') {
      on_its_thread([&] { free(held_.extract(first).mapped()); });
    } else if (kind == 'k') {
      const auto stream = static_cast<size_t>(first);
      on_its_thread([&] { work(TimedDriver::kLanes[stream]); });
      driver.run(stream, cost_of_next(stream));
    } else if (host_ == Host::kWaits || allocations_ < kFirst || allocations_ == kAllocations) {
      wait_for_all();
    }
  }
  uint64_t cost_of_next(size_t stream) {
    const bool is_large = std::exchange(is_large_, false);
    const uint64_t times = batches_ == Batches::k256MiB ? 4 : 1;
    if (stream == TimedDriver::kMain && std::exchange(was_side_, false) && pieces_ % kPiecesOfABatch == 0)
      driver.wait_for_side();
    if (stream == TimedDriver::kSide) was_side_ = true;
    if (stream == TimedDriver::kSide)
      return times * (pieces_++ % kPiecesOfABatch == 0 ? costs_.copy : costs_.side);
    return is_large ? times * costs_.kernel : costs_.small;
  }
  void wait_for_all() {
    const order::Epoch epoch = time().begin_wait(order::Lane::kMany);
    delay_ += driver.end() - std::min(driver.end(), driver.now);
    driver.now = std::max(driver.now, driver.end());
    time().end_wait(epoch, true);
  }

  const Costs costs_;
  const Batches batches_;
  const Host host_;
  Worker worker_;
  std::unordered_map<long, driver::Address> held_;
  uint64_t allocations_ = 0, early_maps_ = 0, early_end_ = 0;
  uint64_t delay_ = 0;  // of the host, against the times in the trace
  unsigned pieces_ = 0;
  bool is_large_ = false;
  bool was_side_ = false;
};

}  // namespace

// With batches of 64 MiB.
constexpr uint64_t kPytorch = 985 * kMiB;

TEST_CASE("a prefetcher needs less memory than under PyTorch's own cache, however long its copies take") {
  const uint64_t kernel = GENERATE(20u, 50u, 80u, 120u);
  const uint64_t copy = GENERATE(300u, 1250u, 2000u, 3000u);
  CAPTURE(kernel, copy);
  CHECK(TimedReplay({kernel, copy}).run("prefetch64-timed").reserved < kPytorch);
}

TEST_CASE("with mapped segments a prefetcher needs no more memory, and neither waits nor moves more") {
  const uint64_t kernel = GENERATE(50u, 80u);
  const uint64_t copy = GENERATE(300u, 1250u, 2000u);
  const Batches batches = GENERATE(Batches::k64MiB, Batches::k256MiB);
  CAPTURE(kernel, copy, batches);
  const auto driver = TimedReplay({kernel, copy}, Segments::kDriver, batches).run("prefetch64-timed");
  const auto mapped = TimedReplay({kernel, copy}, Segments::kMapped, batches).run("prefetch64-timed");
  CHECK(mapped.reserved <= driver.reserved);
  // For 48 batches, a millisecond or a chunk each.
  CHECK(mapped.stalled <= driver.stalled + 48'000);
  CHECK(mapped.late_maps <= 48);
}

TEST_CASE(
    "a prefetcher far ahead of the device is as fast, once it runs, as if nothing waited for its memory") {
  const uint64_t kernel = GENERATE(50u, 60u, 80u);
  const uint64_t copy = GENERATE(300u, 1250u, 2000u);
  const Segments segments = GENERATE(Segments::kDriver, Segments::kMapped);
  CAPTURE(kernel, copy, segments);
  const auto run = [&](bool ignores_waits) {
    TimedReplay program({kernel, copy}, segments, Batches::k256MiB, Host::kIsAhead);
    if (ignores_waits) program.ignore_waits();
    return program.run("prefetch64-timed").late_took;
  };
  const uint64_t ideal = run(true);
  CHECK(run(false) <= ideal + ideal / 100);
}

TEST_CASE("a prefetcher whose memory went back in a pause waits no more than one that begins") {
  const uint64_t kernel = GENERATE(50u, 60u, 80u);
  const uint64_t copy = GENERATE(300u, 1250u, 2000u);
  const Segments segments = GENERATE(Segments::kDriver, Segments::kMapped);
  const Batches batches = GENERATE(Batches::k64MiB, Batches::k256MiB);
  const Host host = GENERATE(Host::kWaits, Host::kIsAhead);
  const Holds holds = GENERATE(Holds::kModel, Holds::kNothing);
  CAPTURE(kernel, copy, segments, batches, host, holds);
  TimedReplay program({kernel, copy}, segments, batches, host);
  const auto first = program.run("prefetch64-timed");
  program.pause(holds);
  const auto both = program.run("prefetch64-timed");
  // For 48 batches, a fifth of a millisecond for each 64 MiB.
  const uint64_t most = first.took + 9'600 * (batches == Batches::k256MiB ? 4 : 1);
  // (The second time it has a model of its own beside the first. With mapped segments that takes the place of
  // a batch of 256 MiB.)
  const bool is_crowded =
      holds == Holds::kModel && segments == Segments::kMapped && batches == Batches::k256MiB;
  if (!is_crowded) CHECK(both.took - first.took <= most);
  if (holds == Holds::kNothing)
    CHECK(both.reserved <= (batches == Batches::k64MiB ? kPytorch : first.reserved));
}

namespace {

// Two streams that take turns on a device that is far behind.
struct TurnsWorld : PoolWorld {
  static constexpr unsigned kBehind = 100, kTurn = 3;

  // A block, and work on it.
  void step(unsigned i, uint64_t bytes) {
    const auto block = allocate(bytes);
    records_.push_back(driver.records);
    work(i / kTurn % 2 == 0 ? kS : kT);
    for (; i >= kBehind && done_ < records_[i - kBehind]; ++done_) driver.finish_oldest();
    free(block);
  }
  void finish() {
    driver.finish();
    const order::Epoch epoch = time().begin_wait(order::Lane::kMany);
    time().end_wait(epoch, true);
    records_.clear();
    done_ = driver.records;
  }

 private:
  std::vector<uint64_t> records_;  // before each piece of work
  uint64_t done_ = 0;
};

}  // namespace

TEST_CASE_METHOD(TurnsWorld,
                 "streams that take turns do not get more memory each time an idle chunk goes back") {
  use_mapped();
  constexpr unsigned kPieces = 3000, kApart = 30;
  std::vector<driver::Address> once;
  for (unsigned i = 0; i < kPieces / kApart; ++i) {
    once.push_back(allocate(4 * kMiB));
    allocate(32 * kMiB);
  }
  uint64_t early = 0;
  for (unsigned i = 0; i < kPieces; ++i) {
    step(i, 20 * kMiB);
    if (i == kPieces / 10) early = reserved();
    if (i % kApart != 0) continue;
    free(once[i / kApart]);
    time().advance();
    pool().release_idle({.enough = 2 * kMiB});
  }
  CHECK(reserved() <= early + early / 50);
}

TEST_CASE_METHOD(TurnsWorld, "a full device is not asked for more whenever streams take turns") {
  use_mapped();
  constexpr unsigned kPieces = 1000, kSizes = 5, kHeld = 40;
  const uint64_t bytes = GENERATE(20u, 64u) * kMiB;
  const bool pauses = GENERATE(false, true);
  CAPTURE(bytes, pauses);
  uint64_t asked = 0;
  mapping.on_create = [&] { ++asked; };
  std::vector<driver::Address> held;
  for (unsigned i = 0; i < kHeld; ++i) held.push_back(allocate(32 * kMiB));
  driver.capacity = reserved() + 2 * bytes + 8 * kMiB;
  if (pauses) {
    // What goes back then, others take.
    const uint64_t left = std::exchange(driver.capacity, ~uint64_t{0});
    for (unsigned i = 0; i < kPieces; ++i) step(i, bytes + i % kSizes * kMiB);
    finish();
    for (driver::Address& block : held) free(block);
    pool().release_idle({});
    for (driver::Address& block : held) block = allocate(32 * kMiB);
    driver.capacity = left;
  }
  uint64_t early = 0;
  for (unsigned i = 0; i < kPieces; ++i) {
    step(i, bytes + i % kSizes * kMiB);
    if (i == kPieces / 10) early = asked;
  }
  CHECK(asked == early);
}

TEST_CASE("streams that take turns get no more memory because the pool was larger before a pause") {
  constexpr unsigned kPieces = 3000, kCut = 10, kApart = 300;
  constexpr uint64_t kBytes = 64 * kMiB;
  const auto reserved_by = [&](bool was_larger) {
    TurnsWorld world;
    if (was_larger) {
      std::vector<driver::Address> held;
      for (int i = 0; i < 100; ++i) held.push_back(world.allocate(4 * kBytes));
      for (unsigned i = 0; i < kPieces; ++i) world.step(i, kBytes);
      for (const driver::Address block : held) world.free(block);
      world.finish();
      world.pool().release_idle({});
      REQUIRE(world.reserved() == 0);
    }
    for (unsigned i = 0; i < kPieces; ++i) {
      world.step(i, kBytes);
      // Some cut what lies free, and some find nothing that fits.
      if (i % kCut == 0) world.allocate(3 * kMiB);
      if (i % kApart == 0) world.allocate(3 * kBytes / 2);
    }
    return world.reserved();
  };
  CHECK(reserved_by(true) <= reserved_by(false));
}

TEST_CASE_METHOD(PoolWorld, "a device with room for two blocks of about one size holds both, in any order") {
  if (GENERATE(false, true)) use_mapped();
  constexpr uint64_t kOne = 96 * kMiB, kOther = 104 * kMiB;
  driver::Address one = allocate(kOne), other = allocate(kOther);
  driver.capacity = driver.reserved;
  const auto work_on_both = [&] {
    work(kS);
    work(kT);
  };
  for (int i = 0; i < 40; ++i) {
    work_on_both();
    free(other);
    work_on_both();
    free(one);
    work_on_both();
    one = allocate(kOne);
    work(kS);
    other = allocate(kOther);
  }
  CHECK(driver.synchronisations == 0);
}

TEST_CASE_METHOD(PoolWorld, "streams that take turns are told apart however long the device has kept up") {
  constexpr int kTurns = 10'000, kBlocks = 3;
  for (int i = 0; i < kTurns; ++i) {
    std::vector<driver::Address> blocks;
    for (int k = 0; k < kBlocks; ++k) {
      blocks.push_back(allocate((16 + k) * kMiB));
      work(i % 2 == 0 ? kS : kT);
    }
    for (const driver::Address block : blocks) free(block);
    driver.finish();
    time().advance();
  }
  const uint64_t turn = time().turns().now();
  work(kS);
  CHECK(time().turns().now() > turn);
  CHECK(time().sole_since(time().turns().now()) != order::LaneName::kNone);
}

TEST_CASE_METHOD(PoolWorld, "no stream waits for a block that another thread keeps while others lie free") {
  constexpr uint64_t kBytes = 32 * kMiB;
  std::vector<driver::Address> large;
  for (int i = 0; i < 8; ++i) large.push_back(allocate(4 * kBytes));
  for (int i = 0; i < 8; i += 2) free(large[i]);
  Worker other;
  uint64_t early = 0;
  for (int i = 0; i < 100; ++i) {
    other.run([&] {
      const auto block = allocate(kBytes);
      work(kT);
      free(block);
    });
    const auto block = allocate(kBytes);
    work(kS);
    driver.finish();
    time().advance();
    free(block);
    if (i == 1) early = driver.waits;
  }
  CHECK(driver.waits == early);
}
