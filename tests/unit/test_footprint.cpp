// How much device memory the pool needs for the allocations of real programs (tests/data), against what
// PyTorch's own cache needs for the same ones, and how often it calls the driver for it.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

struct Figures {
  uint64_t peak_live = 0, peak_reserved = 0, driver_calls = 0;
  uint64_t last_live = 0, last_reserved = 0;  // at the end, when what is idle has gone back
  uint64_t late_calls = 0;                    // driver calls in the last quarter
  double fragmentation() const {
    return 100.0 * (1.0 - static_cast<double>(peak_live) / static_cast<double>(peak_reserved));
  }
};

struct Trace {
  const char* name;
  uint64_t pytorch_mib, pytorch_allocations, allocations;
};
constexpr Trace kTraces[] = {
    {"gpt", 952, 67, 9666}, {"conv", 1064, 37, 4079}, {"llama", 1572, 137, 13233}, {"gnn", 842, 21, 2692}};

constexpr Trace kStreams[] = {
    {"turns", 1700, 98, 6564}, {"prefetch64", 918, 16, 485}, {"prefetch256", 3546, 18, 485}};

order::Lane lane(long stream) {
  return stream < 0 ? order::Lane::kMany : order::lane_of_handle(0x1000 * static_cast<uint64_t>(stream + 1));
}

// When the work that was submitted is done: when the program waits for it, at once, or as soon as so many
// kernels more have been launched.
enum class Work { kEndsWhenWaitedFor, kEndsAtOnce, kEndsSoon };
constexpr size_t kLaunchesBehind = 100;
enum class Segments { kDriver, kMapped };

// Every event of a trace, in one thread.
class Replay : PoolWorld {
 public:
  explicit Replay(Work work = Work::kEndsWhenWaitedFor, Segments segments = Segments::kDriver) : work_(work) {
    if (segments == Segments::kMapped) use_mapped();
    driver.on_query = [this] { end_if_watched(); };
  }
  Figures run(const Trace& trace) {
    play(trace);
    figures_.peak_reserved = driver.peak;
    figures_.driver_calls = calls();
    figures_.late_calls = calls() - early_calls_;
    end_all();
    time().advance();
    memory.idle().trim(0);
    check_records();
    figures_.last_live = live_;
    figures_.last_reserved = driver.reserved;
    return figures_;
  }
  // Once more, by a program that has freed what it still held. Returns how often the driver was called.
  uint64_t run_again(const Trace& trace) {
    for (const auto& [number, held] : std::exchange(held_, {})) free(held.address);
    live_ = allocations_ = 0;
    const uint64_t before = calls();
    play(trace);
    return calls() - before;
  }

 private:
  struct Held {
    driver::Address address;
    uint64_t bytes;
  };

  void play(const Trace& trace) {
    const std::string command = std::string("gzip -dc '" CUPOOL_TEST_DATA "/") + trace.name + ".trace.gz'";
    const std::unique_ptr<FILE, int (*)(FILE*)> input(popen(command.c_str(), "r"), pclose);
    REQUIRE(input != nullptr);
    char line[128];
    while (fgets(line, sizeof line, input.get()) != nullptr) {
      step(line);
      if (allocations_ == trace.allocations / 4 * 3) early_calls_ = calls();
    }
    REQUIRE(allocations_ == trace.allocations);
    check_records();
  }
  uint64_t calls() const { return driver.allocations + driver.releases + mapping.maps + mapping.releases; }
  void step(const char* line) {
    char kind = 0;
    long first = 0;
    unsigned long bytes = 0;
    REQUIRE(sscanf(line, "%c %ld %lu", &kind, &first, &bytes) >= 2);
    if (kind == 'a') {
      held_[first] = {allocate(bytes), bytes};
      live_ += bytes;
      figures_.peak_live = std::max(figures_.peak_live, live_);
      ++allocations_;
    } else if (kind == 'f') {
      live_ -= held_[first].bytes;
      free(held_[first].address);
      held_.erase(first);
    } else if (kind == 'k') {
      work(lane(first));
      if (work_ == Work::kEndsAtOnce) end_all();
      if (work_ == Work::kEndsSoon) end_some();
    } else if (kind == 's') {
      const order::Epoch epoch = time().begin_wait(lane(first));
      end_all();
      time().end_wait(epoch, true);
    }
  }

  // The device is behind the program by so many launches: what was recorded before that is done.
  void end_some() {
    recorded_.push_back(driver.records);
    if (recorded_.size() <= kLaunchesBehind) return;
    for (; done_ < recorded_.front(); ++done_) driver.finish_oldest();
    recorded_.pop_front();
  }
  // Whoever waits asks again and again, with nothing submitted in between.
  void end_if_watched() {
    constexpr unsigned kOften = 20;
    if (std::exchange(records_, driver.records) != driver.records) asked_ = 0;
    if (++asked_ == kOften) end_all();
  }
  void end_all() {
    driver.finish();
    done_ = driver.records;
  }

  const Work work_;
  uint64_t records_ = 0;
  unsigned asked_ = 0;
  std::deque<uint64_t> recorded_;
  uint64_t done_ = 0;
  Figures figures_;
  std::unordered_map<long, Held> held_;
  uint64_t live_ = 0, allocations_ = 0, early_calls_ = 0;
};

void tell(const Trace& trace, const Figures& figures) {
  std::printf(
      "%-11s reserved %4llu MiB (PyTorch %4llu), fragmentation %4.1f %%, driver calls %llu (PyTorch %llu)\n",
      trace.name, static_cast<unsigned long long>(figures.peak_reserved / kMiB),
      static_cast<unsigned long long>(trace.pytorch_mib), figures.fragmentation(),
      static_cast<unsigned long long>(figures.driver_calls),
      static_cast<unsigned long long>(trace.pytorch_allocations));
}

}  // namespace

TEST_CASE("real programs need no more memory than under PyTorch's own cache, and no more driver calls") {
  double fragmentation = 0;
  for (const Trace& trace : kTraces) {
    CAPTURE(trace.name);
    const Figures figures = Replay().run(trace);
    CHECK(figures.peak_reserved <= trace.pytorch_mib * kMiB);
    CHECK(figures.fragmentation() <= 25.0);
    CHECK(2 * figures.driver_calls <= 3 * trace.pytorch_allocations);
    fragmentation += figures.fragmentation() / std::size(kTraces);
    tell(trace, figures);
  }
  CHECK(fragmentation <= 15.0);
}

TEST_CASE("programs of several streams need no more memory than under PyTorch's own cache") {
  for (const Trace& trace : kStreams) {
    CAPTURE(trace.name);
    const Figures figures = Replay(Work::kEndsAtOnce).run(trace);
    CHECK(figures.peak_reserved <= trace.pytorch_mib * kMiB);
    CHECK(figures.driver_calls <= trace.pytorch_allocations);
    tell(trace, figures);
  }
}

namespace {

double over(uint64_t reserved, uint64_t live) {
  return static_cast<double>(reserved) / static_cast<double>(live);
}

std::vector<Trace> all_traces() {
  std::vector<Trace> all(std::begin(kTraces), std::end(kTraces));
  all.insert(all.end(), std::begin(kStreams), std::end(kStreams));
  return all;
}

void tell_mapped(const Trace& trace, const Figures& figures, const Figures& segments) {
  std::printf(
      "%-11s mapped: reserved %4llu MiB, %.3f of live (the driver's %.3f), %llu chunks came, moved or went, "
      "%llu of them late\n",
      trace.name, static_cast<unsigned long long>(figures.peak_reserved / kMiB),
      over(figures.peak_reserved, figures.peak_live), over(segments.peak_reserved, segments.peak_live),
      static_cast<unsigned long long>(figures.driver_calls),
      static_cast<unsigned long long>(figures.late_calls));
}

}  // namespace

TEST_CASE(
    "mapped segments need less than the driver's, for one stream at most a twentieth more than is live") {
  for (const Work work : {Work::kEndsAtOnce, Work::kEndsSoon, Work::kEndsWhenWaitedFor}) {
    for (const Trace& trace : all_traces()) {
      CAPTURE(trace.name, work);
      const Figures figures = Replay(work, Segments::kMapped).run(trace);
      const bool has_streams = std::any_of(std::begin(kStreams), std::end(kStreams),
                                           [&](const Trace& one) { return one.name == trace.name; });
      if (!has_streams) CHECK(over(figures.peak_reserved, figures.peak_live) <= 1.05);
      const Figures segments = Replay(work, Segments::kDriver).run(trace);
      CHECK(figures.peak_reserved < segments.peak_reserved);
      // It falls with what is live; a chunk stays for a single block in it.
      CHECK(over(figures.last_reserved, figures.last_live) <= 1.2);
      // What comes back in every round of a program finds its place after a few of them.
      CHECK(6 * figures.late_calls <= figures.driver_calls);
      tell_mapped(trace, figures, segments);
    }
  }
}

// Two or three dozen steps of each program: a chunk takes a tenth of a millisecond to move.
TEST_CASE("with mapped segments a program that repeats itself comes to rest") {
  constexpr int kTimes = 6, kLast = 3;
  for (const Work work : {Work::kEndsAtOnce, Work::kEndsSoon, Work::kEndsWhenWaitedFor}) {
    for (const Trace& trace : all_traces()) {
      CAPTURE(trace.name, work);
      Replay program(work, Segments::kMapped);
      uint64_t calls = 0;
      for (int i = 0; i < kTimes; ++i) {
        const uint64_t now = program.run_again(trace);
        if (i >= kTimes - kLast) calls += now;
      }
      CHECK(calls / kLast <= 100);
    }
  }
}
