// Whether a call costs more the more lies around it: blocks that live, blocks whose work is pending, threads
// that sleep with memory of theirs, streams, exported blocks. Each line climbs a ladder of counts and ends
// with the dearest step over the cheapest; flat is below 2. Bare or preloaded alike; run each line (--only)
// in a process of its own, the simulated driver with CUPOOL_SIM_MEMORY=64G.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <random>

#include "bench.hpp"

namespace {

using namespace bench;

constexpr size_t kKiB = 1024, kMiB = 1024 * 1024;

class Line {
 public:
  Line(Report& report, const Options& options, std::string name, std::vector<size_t> counts)
      : report_(report), options_(options), name_(std::move(name)), counts_(std::move(counts)) {
    if (options_.smoke) counts_.resize(1);
  }
  bool is_wanted() const { return options_.wants(name_.c_str()); }
  // `step(count, what, ns)` reports each call that it measured among so many.
  using Note = std::function<void(const char*, const Spread&)>;
  void climb(const std::function<void(size_t, const Note&)>& step) {
    if (!is_wanted()) return;
    std::vector<std::pair<std::string, std::vector<double>>> all;
    for (const size_t count : counts_) {
      step(count, [&](const char* what, const Spread& value) {
        report_.add(name_ + " " + std::to_string(count) + ": " + what, "ns", value);
        auto found = std::find_if(all.begin(), all.end(), [&](auto& one) { return one.first == what; });
        if (found == all.end()) found = all.insert(all.end(), {what, {}});
        found->second.push_back(value.median);
      });
    }
    for (const auto& [what, values] : all) {
      const auto [least, most] = std::minmax_element(values.begin(), values.end());
      report_.add(name_ + ": " + what + ", dearest / cheapest", "x", *most / *least);
    }
  }

 private:
  Report& report_;
  const Options options_;
  const std::string name_;
  std::vector<size_t> counts_;
};

template <typename Call>
Spread each(size_t times, Call&& call) {
  std::vector<double> took;
  for (size_t i = 0; i < times; ++i) {
    const double begin = now_ns();
    call(i);
    took.push_back(now_ns() - begin);
  }
  return spread_of(took);
}

size_t free_bytes() {
  size_t free = 0, total = 0;
  BENCH_CHECK(cuMemGetInfo(&free, &total));
  return free;
}

auto refusals(const Options& options) {
  const size_t too_much = free_bytes() + 64 * kMiB;
  return each(options.smoke ? 2 : 30, [&](size_t) {
    CUdeviceptr block = 0;
    if (cuMemAlloc(&block, too_much) == CUDA_SUCCESS) die("more than there is was given", 0);
  });
}

void release_all(std::vector<CUdeviceptr>& blocks) {
  for (const CUdeviceptr block : blocks) release(block);
  blocks.clear();
}

void live_blocks(Report& report, const Options& options) {
  Line line(report, options, "blocks live", {10, 1'000, 100'000, 1'000'000});
  line.climb([&](size_t count, const Line::Note& note) {
    std::vector<CUdeviceptr> blocks;
    for (size_t i = 0; i < count; ++i) blocks.push_back(allocate(1024));
    std::mt19937_64 random(1);
    const auto pairs = [](size_t turns) {
      for (size_t i = 0; i < turns; ++i) release(allocate(1024));
    };
    note("pair", Batches(pairs, options.smoke).all());
    const auto replace = [&](size_t turns) {
      for (size_t i = 0; i < turns; ++i) {
        CUdeviceptr& one = blocks[random() % count];
        release(one);
        one = allocate(1024);
      }
    };
    note("replace one of them", Batches(replace, options.smoke).all());
    note("cuMemGetInfo", each(options.smoke ? 2 : 50, [](size_t) { free_bytes(); }));
    note("cuMemGetAddressRange", each(options.smoke ? 2 : 500, [&](size_t) {
           CUdeviceptr base = 0;
           size_t bytes = 0;
           BENCH_CHECK(cuMemGetAddressRange(&base, &bytes, blocks[random() % count] + 100));
         }));
    note("a refused request", refusals(options));
    release_all(blocks);
  });
}

// Segments of which each is a block.
void segments(Report& report, const Options& options) {
  Line line(report, options, "segments live", {10, 100, 1'000, 2'000});
  line.climb([&](size_t count, const Line::Note& note) {
    std::vector<CUdeviceptr> blocks;
    for (size_t i = 0; i < count; ++i) blocks.push_back(allocate(24 * kMiB));
    for (size_t i = 0; i < count; i += 2) release(blocks[i]);
    for (size_t i = 0; i < count; i += 2) blocks[i] = allocate(24 * kMiB);
    note("cuMemGetInfo", each(options.smoke ? 2 : 50, [](size_t) { free_bytes(); }));
    note("a refused request", refusals(options));
    release_all(blocks);
  });
}

// Holes of many sizes between blocks that live.
void holes(Report& report, const Options& options) {
  Line line(report, options, "holes between blocks", {10, 1'000, 10'000, 100'000});
  std::vector<CUdeviceptr> more;  // lives to the end of the line
  line.climb([&](size_t count, const Line::Note& note) {
    std::vector<CUdeviceptr> blocks;
    std::mt19937_64 random(1);
    for (size_t i = 0; i < 2 * count; ++i) blocks.push_back(allocate(40 * kKiB + random() % 64 * 512));
    for (size_t i = 0; i < blocks.size(); i += 2) release(blocks[i]);
    const auto pairs = [](size_t turns) {
      for (size_t i = 0; i < turns; ++i) release(allocate(2 * kMiB));
    };
    note("pair of 2 MiB", Batches(pairs, options.smoke).all());
    note("more of 24 MiB",
         each(options.smoke ? 2 : 30, [&](size_t) { more.push_back(allocate(24 * kMiB)); }));
    note("cuMemGetInfo", each(options.smoke ? 2 : 50, [](size_t) { free_bytes(); }));
    for (size_t i = 1; i < blocks.size(); i += 2) release(blocks[i]);
  });
  release_all(more);
}

// Whether frees wait for nothing, however much is freed behind work that stands.
bool frees_never_wait() {
  if (std::getenv("LD_PRELOAD") == nullptr) return false;
  for (const char* const setting : {"CUPOOL_STREAMS", "CUPOOL_FREE", "CUPOOL_SPLIT", "CUPOOL_BACKEND"}) {
    if (std::getenv(setting) != nullptr) return false;
  }
  return true;
}

// Blocks freed behind work that stands in two streams; where a free would stand with it, as bare, nothing
// does.
void pending(Report& report, const Options& options, Device& device) {
  const bool may_stand = frees_never_wait();
  Line line(report, options, "blocks pending", {100, 1'000, 10'000, 100'000});
  line.climb([&](size_t count, const Line::Note& note) {
    CUstream streams[2];
    for (CUstream& stream : streams) BENCH_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    std::vector<CUdeviceptr> blocks;
    for (size_t i = 0; i < count; ++i) blocks.push_back(allocate(40'000));
    std::atomic<bool> may_end{!may_stand};
    for (const CUstream stream : streams) {
      const auto stand = [](void* flag) {
        while (!static_cast<std::atomic<bool>*>(flag)->load()) usleep(100);
      };
      BENCH_CHECK(cuLaunchHostFunc(stream, stand, &may_end));
    }
    size_t turn = 0;
    for (const CUdeviceptr block : blocks) {
      if (turn++ % 100 == 0) device.spin(1, streams[turn / 100 % 2]);
      release(block);
    }
    const auto pairs_of = [&](size_t bytes) {
      return each(options.smoke ? 2 : 200, [&](size_t i) {
        const CUdeviceptr block = allocate(bytes);
        device.spin(1, streams[i % 2]);
        release(block);
      });
    };
    note("pair and launch, same size", pairs_of(40'000));
    note("pair and launch, 2 MiB", pairs_of(2 * kMiB));
    note("pair and launch, 512 B", pairs_of(512));
    note("cuMemGetInfo", each(options.smoke ? 2 : 20, [](size_t) { free_bytes(); }));
    may_end = true;
    BENCH_CHECK(cuCtxSynchronize());
    for (const CUstream stream : streams) BENCH_CHECK(cuStreamDestroy(stream));
  });
}

// Threads that have used a little memory, and sleep.
class Sleepers {
 public:
  Sleepers(Device& device, size_t count) : device_(device), threads_(count) {
    pthread_barrier_init(&used_, nullptr, static_cast<unsigned>(count + 1));
    pthread_barrier_init(&end_, nullptr, static_cast<unsigned>(count + 1));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * kKiB);
    for (pthread_t& thread : threads_) {
      if (pthread_create(&thread, &attributes, &run, this) != 0) die("no thread", 0);
    }
    pthread_attr_destroy(&attributes);
    pthread_barrier_wait(&used_);
  }
  ~Sleepers() {
    pthread_barrier_wait(&end_);
    for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
  }
  Sleepers(const Sleepers&) = delete;
  Sleepers& operator=(const Sleepers&) = delete;

 private:
  static void* run(void* self) {
    auto& all = *static_cast<Sleepers*>(self);
    all.device_.enter_thread();
    const CUdeviceptr small = allocate(512), large = allocate(100 * kKiB);
    release(small);
    release(large);
    pthread_barrier_wait(&all.used_);
    pthread_barrier_wait(&all.end_);
    return nullptr;
  }

  Device& device_;
  std::vector<pthread_t> threads_;
  pthread_barrier_t used_, end_;
};

void threads(Report& report, const Options& options, Device& device) {
  Line line(report, options, "threads asleep", {1, 10, 100, 1'000, 2'000});
  // They live to the end of the line, so that each step has to take more memory, and so many from the
  // beginning that their number is about the same at each step.
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; line.is_wanted() && !options.smoke && i < 600; ++i) blocks.push_back(allocate(24 * kMiB));
  line.climb([&](size_t count, const Line::Note& note) {
    const Sleepers sleepers(device, count);
    note("more of 24 MiB",
         each(options.smoke ? 2 : 100, [&](size_t) { blocks.push_back(allocate(24 * kMiB)); }));
    size_t turn = 0;
    note("replace one of 24 MiB", each(options.smoke ? 2 : 300, [&](size_t) {
           CUdeviceptr& one = blocks[turn % blocks.size()];
           release(one);
           one = allocate(24 * kMiB - turn++ % 3 * kMiB);
         }));
    const auto pairs = [](size_t turns) {
      for (size_t i = 0; i < turns; ++i) release(allocate(512));
    };
    note("pair", Batches(pairs, options.smoke).all());
    note("cuMemGetInfo", each(options.smoke ? 2 : 50, [](size_t) { free_bytes(); }));
    note("a refused request", refusals(options));
  });
  release_all(blocks);
}

void streams(Report& report, const Options& options, Device& device) {
  Line line(report, options, "streams in turn", {1, 16, 256, 4'096});
  line.climb([&](size_t count, const Line::Note& note) {
    std::vector<CUstream> all(count);
    for (CUstream& stream : all) BENCH_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    size_t turn = 0;
    const auto call = [&](size_t) {
      const CUdeviceptr block = allocate(100'000);
      device.spin(1, all[turn++ % count]);
      release(block);
      if (turn % 200 == 0) BENCH_CHECK(cuCtxSynchronize());
    };
    each(options.smoke ? 2 : 2 * count, call);
    note("pair and launch", each(options.smoke ? 2 : 4'000, call));
    BENCH_CHECK(cuCtxSynchronize());
    for (const CUstream stream : all) BENCH_CHECK(cuStreamDestroy(stream));
  });
}

void exported(Report& report, const Options& options) {
  Line line(report, options, "exported blocks", {100, 1'000, 10'000});
  line.climb([&](size_t count, const Line::Note& note) {
    std::vector<CUdeviceptr> blocks;
    note("allocate and export", each(options.smoke ? 2 : count, [&](size_t) {
           blocks.push_back(allocate(1024));
           CUipcMemHandle handle;
           BENCH_CHECK(cuIpcGetMemHandle(&handle, blocks.back()));
         }));
    note("cuMemGetInfo", each(options.smoke ? 2 : 50, [](size_t) { free_bytes(); }));
    note("a refused request", refusals(options));
    note("free", each(blocks.size(), [&](size_t i) { release(blocks[i]); }));
  });
}

}  // namespace

int main(int count, char** words) {
  const Options options = parse(count, words);
  Device device;
  Report report("growth", options);
  live_blocks(report, options);
  segments(report, options);
  holes(report, options);
  pending(report, options, device);
  threads(report, options, device);
  streams(report, options, device);
  exported(report, options);
}
