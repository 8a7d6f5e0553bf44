// How much device memory the pool needs for the allocations of real programs (tests/data), against what
// PyTorch's own cache needs for the same ones, and how often it calls the driver for it.
#include <cstdio>
#include <memory>
#include <string>
#include <unordered_map>

#include "pool_world.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

struct Figures {
  uint64_t peak_live = 0, peak_reserved = 0, driver_calls = 0;
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

enum class Work { kEndsWhenWaitedFor, kEndsAtOnce };
enum class Segments { kDriver, kMapped };

// Every event of a trace, in one thread.
class Replay : PoolWorld {
 public:
  explicit Replay(Work work = Work::kEndsWhenWaitedFor, Segments segments = Segments::kDriver)
      : ends_at_once_(work == Work::kEndsAtOnce) {
    if (segments == Segments::kMapped) use_mapped();
  }
  Figures run(const Trace& trace) {
    const std::string command = std::string("gzip -dc '" CUPOOL_TEST_DATA "/") + trace.name + ".trace.gz'";
    const std::unique_ptr<FILE, int (*)(FILE*)> input(popen(command.c_str(), "r"), pclose);
    REQUIRE(input != nullptr);
    char line[128];
    while (fgets(line, sizeof line, input.get()) != nullptr) step(line);
    REQUIRE(allocations_ == trace.allocations);
    check_records();
    figures_.peak_reserved = driver.peak;
    figures_.driver_calls = driver.allocations + driver.releases + mapping.creates + mapping.releases;
    return figures_;
  }

 private:
  struct Held {
    driver::Address address;
    uint64_t bytes;
  };

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
    } else if (kind == 'k') {
      work(lane(first));
      if (ends_at_once_) driver.finish();
    } else if (kind == 's') {
      const order::Epoch epoch = time().begin_wait(lane(first));
      driver.finish();
      time().end_wait(epoch, true);
    }
  }

  const bool ends_at_once_;
  Figures figures_;
  std::unordered_map<long, Held> held_;
  uint64_t live_ = 0, allocations_ = 0;
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

TEST_CASE("mapped segments need hardly more than is live") {
  for (const Work work : {Work::kEndsWhenWaitedFor, Work::kEndsAtOnce}) {
    for (const Trace& trace : kTraces) {
      CAPTURE(trace.name);
      const Figures figures = Replay(work, Segments::kMapped).run(trace);
      tell(trace, figures);
    }
    for (const Trace& trace : kStreams) {
      CAPTURE(trace.name);
      const Figures figures = Replay(work, Segments::kMapped).run(trace);
      tell(trace, figures);
    }
  }
}
