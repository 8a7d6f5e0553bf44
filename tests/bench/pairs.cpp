// How long an allocation and its free take without any work on the GPU: hit pairs by size beside malloc/free
// in the same run, mixed sizes, threads, a thread that frees what another allocated, and host memory per
// block. Says nothing of who serves the memory: it runs bare or preloaded alike, and compare puts the runs
// side by side.
#include <dlfcn.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <memory>
#include <random>
#include <thread>
#include <unordered_set>

#include "bench.hpp"

namespace {

using namespace bench;

constexpr size_t kKiB = 1024, kMiB = 1024 * 1024;

void hit_pairs(Report& report, const Options& options) {
  const auto system = [](size_t turns) {
    for (size_t i = 0; i < turns; ++i) {
      void* volatile p = std::malloc(64);
      std::free(p);
    }
  };
  std::vector<double> of_malloc;
  for (size_t bytes : {size_t{256}, 4 * kKiB, 64 * kKiB, 256 * kKiB, kMiB, 2 * kMiB, 16 * kMiB, 64 * kMiB}) {
    const std::string name = "pair " + size_name(bytes);
    if (!options.wants(name.c_str())) continue;
    Batches device(
        [bytes](size_t turns) {
          for (size_t i = 0; i < turns; ++i) release(allocate(bytes));
        },
        options.smoke);
    // Beside each other, batch by batch: a ratio then holds whatever else the machine is doing.
    Batches host(system, options.smoke, 30e6);
    for (size_t i = 0; i < device.batches(); ++i) {
      host.once();
      device.once();
    }
    report.add(name, "ns", device.spread());
    of_malloc.push_back(host.spread().median);
    report.add(name + " / malloc pair", "x", device.spread().median / host.spread().median);
  }
  if (!of_malloc.empty()) report.add("malloc(64) pair", "ns", spread_of(of_malloc));
}

// 64 live blocks; each turn replaces one of them by one of another size.
void mixed(Report& report, const Options& options, const char* name, size_t largest) {
  if (!options.wants(name)) return;
  std::mt19937_64 random(7);
  const double span = std::log2(double(largest) / 256.0);
  std::uniform_real_distribution<double> part(0.0, span);
  struct Turn {
    size_t slot, bytes;
  };
  std::vector<Turn> turns(4096);
  for (Turn& turn : turns) turn = {random() % 64, static_cast<size_t>(256.0 * std::exp2(part(random)))};
  std::vector<CUdeviceptr> live(64);
  for (CUdeviceptr& p : live) p = allocate(4 * kKiB);
  size_t next = 0;
  const auto run = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const Turn& turn = turns[next++ % turns.size()];
      release(live[turn.slot]);
      live[turn.slot] = allocate(turn.bytes);
    }
  };
  if (!options.smoke) run(2 * turns.size());
  Batches batches(run, options.smoke);
  report.add(name, "ns", batches.all());
  for (CUdeviceptr p : live) release(p);
}

// Millions of pairs a second, all threads together.
double threads_rate(Device& device, size_t count, double seconds) {
  constexpr size_t kSizes[] = {512, 2 * kKiB, 4 * kKiB, 16 * kKiB};
  std::atomic<bool> stop{false};
  std::barrier start(static_cast<std::ptrdiff_t>(count + 1));
  std::vector<size_t> made(count);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      device.enter_thread();
      for (size_t bytes : kSizes) release(allocate(bytes));
      size_t pairs = 0;
      start.arrive_and_wait();
      while (!stop.load(std::memory_order_relaxed)) {
        for (size_t i = 0; i < 64; ++i) release(allocate(kSizes[i % 4]));
        pairs += 64;
      }
      made[t] = pairs;
    });
  }
  start.arrive_and_wait();
  const double begin = now_ns();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  const double took = now_ns() - begin;
  double sum = 0;
  for (size_t pairs : made) sum += double(pairs);
  return sum / took * 1e3;
}

void threads(Device& device, Report& report, const Options& options) {
  const size_t counts[] = {1, 2, 4, 8, 16};
  std::vector<double> rates[5];
  for (int round = 0; round < (options.smoke ? 1 : 5); ++round) {
    for (size_t i = 0; i < 5; ++i) {
      const std::string name = "threads " + std::to_string(counts[i]);
      if (!options.wants(name.c_str()) || (options.smoke && i > 1)) continue;
      rates[i].push_back(threads_rate(device, counts[i], options.smoke ? 0.01 : 0.1));
    }
  }
  for (size_t i = 0; i < 5; ++i) {
    if (rates[i].empty()) continue;
    report.add("threads " + std::to_string(counts[i]), "M/s", spread_of(rates[i]));
  }
  if (rates[0].empty() || rates[1].empty()) return;
  report.add("threads 2 / 1", "x", spread_of(rates[1]).median / spread_of(rates[0]).median);
}

// A ring between one thread that puts and one that takes. Each looks at the other's place only when it seems
// to have come to the end: what is measured is the allocator, not the ring.
class Ring {
 public:
  void put(CUdeviceptr p) {
    const size_t end = end_.load(std::memory_order_relaxed);
    while (end - begin_seen_ == kSlots) {
      begin_seen_ = begin_.load(std::memory_order_acquire);
      if (end - begin_seen_ == kSlots) std::this_thread::yield();
    }
    slots_[end % kSlots] = p;
    end_.store(end + 1, std::memory_order_release);
  }

  CUdeviceptr take() {
    const size_t begin = begin_.load(std::memory_order_relaxed);
    while (begin == end_seen_) {
      end_seen_ = end_.load(std::memory_order_acquire);
      if (begin == end_seen_) std::this_thread::yield();
    }
    const CUdeviceptr p = slots_[begin % kSlots];
    begin_.store(begin + 1, std::memory_order_release);
    return p;
  }

  static constexpr size_t kSlots = 1024;

 private:
  CUdeviceptr slots_[kSlots];
  alignas(64) std::atomic<size_t> begin_{0};
  size_t end_seen_ = 0;
  alignas(64) std::atomic<size_t> end_{0};
  size_t begin_seen_ = 0;
};

// Nanoseconds a number, without any memory: what the ring itself costs.
double ring_alone(size_t count) {
  const auto ring = std::make_unique<Ring>();
  std::thread consumer([&] {
    for (size_t i = 0; i < count; ++i) ring->take();
  });
  const double begin = now_ns();
  for (size_t i = 0; i < count; ++i) ring->put(i);
  consumer.join();
  return (now_ns() - begin) / double(count);
}

// Nanoseconds a pair; `seen`, if asked for, gets every address that was handed out.
double hand_over(Device& device, size_t pairs, std::unordered_set<CUdeviceptr>* seen) {
  const auto ring = std::make_unique<Ring>();
  std::thread consumer([&] {
    device.enter_thread();
    for (size_t i = 0; i < pairs; ++i) release(ring->take());
  });
  const double begin = now_ns();
  for (size_t i = 0; i < pairs; ++i) {
    const CUdeviceptr p = allocate(4 * kKiB);
    if (seen != nullptr) seen->insert(p);
    ring->put(p);
  }
  consumer.join();
  return (now_ns() - begin) / double(pairs);
}

void producer_consumer(Device& device, Report& report, const Options& options) {
  if (!options.wants("producer")) return;
  const size_t first = options.smoke ? 200 : 2000;
  const double pilot = hand_over(device, first, nullptr);
  const auto pairs = options.smoke ? first : static_cast<size_t>(std::clamp(100e6 / pilot, 1000.0, 1e6));
  std::vector<double> values;
  for (int i = 0; i < (options.smoke ? 1 : 7); ++i) values.push_back(hand_over(device, pairs, nullptr));
  report.add("producer/consumer pair", "ns", spread_of(values));
  std::vector<double> of_ring;
  for (int i = 0; i < (options.smoke ? 1 : 7); ++i) of_ring.push_back(ring_alone(pairs));
  report.add("producer/consumer: the ring alone", "ns", spread_of(of_ring));
  // Bounded: however long it runs, the blocks handed out are those that fit in the ring and the caches.
  std::unordered_set<CUdeviceptr> seen;
  hand_over(device, pairs, &seen);
  report.add("producer/consumer blocks used", "blocks", double(seen.size()));
}

double private_bytes() {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  char line[256];
  double kib = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "RssAnon: %lf kB", &kib) == 1) break;
  }
  std::fclose(file);
  return kib * 1024;
}

void host_memory(Report& report, const Options& options, size_t bytes, size_t count) {
  const std::string name = "host memory, " + std::to_string(count) + " x " + size_name(bytes);
  if (!options.wants(name.c_str())) return;
  std::vector<CUdeviceptr> blocks(count, 1);
  const double before = private_bytes();
  size_t made = 0;
  for (; made < count; ++made) {
    if (cuMemAlloc(&blocks[made], bytes) != CUDA_SUCCESS) break;
  }
  const double grown = private_bytes() - before;
  for (size_t i = 0; i < made; ++i) release(blocks[i]);
  if (made < count) return;  // the device is too small to say
  report.add(name, "MiB", grown / double(kMiB));
  report.add(name + " / allowed", "x", grown / (double(count) * double(bytes) / 1000 + 4.0 * kMiB));
}

}  // namespace

int main(int count, char** words) {
  const Options options = parse(count, words);
  Device device;
  Report report("pairs", options);
  hit_pairs(report, options);
  mixed(report, options, "mixed 256 B - 32 KiB, 64 live", 32 * kKiB);
  mixed(report, options, "mixed 256 B - 1 MiB, 64 live", kMiB);
  mixed(report, options, "mixed 256 B - 64 MiB, 64 live", 64 * kMiB);
  threads(device, report, options);
  producer_consumer(device, report, options);
  // The driver's own book-keeping is not the question, and a million calls of it take long.
  const auto enabled = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "cupool_is_enabled"));
  if (enabled != nullptr && enabled() != 0) {
    host_memory(report, options, 512, options.smoke ? 1000 : 1000000);
    host_memory(report, options, 64 * kKiB, options.smoke ? 100 : 32768);
    host_memory(report, options, 2 * kMiB, options.smoke ? 10 : 4096);
  }
  return 0;
}
