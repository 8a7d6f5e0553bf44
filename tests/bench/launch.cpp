// What memory costs a program that has work on the GPU: allocate, launch a kernel of about 10 us, free; on
// one stream and on several threads with a stream each. Three ways take turns within one run: launch alone,
// cuMemAlloc/cuMemFree (the driver's, or cupool's when preloaded) and the driver's stream-ordered
// cuMemAllocAsync/cuMemFreeAsync. Also the cost of a call that submits work, in turns with the driver's own
// function behind it.
#include <atomic>
#include <barrier>
#include <functional>
#include <thread>

#include "bench.hpp"
#include "past_hooks.hpp"

namespace {

using namespace bench;

constexpr unsigned long long kKernelNs = 10000;
enum Way { kAlone, kPlain, kAsync };
constexpr const char* kWays[] = {"launch alone", "cuMemAlloc", "cuMemAllocAsync"};

// Gives freed memory back to no one but the program; false where the device has no such pools.
bool keep_freed_memory(const Device& device) {
  CUmemoryPool pool = nullptr;
  if (cuDeviceGetDefaultMemPool(&pool, device.device()) == CUDA_ERROR_NOT_SUPPORTED) return false;
  cuuint64_t everything = UINT64_MAX;
  BENCH_CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything));
  return true;
}

void iterate(Device& device, Way way, size_t bytes, size_t count, CUstream stream) {
  for (size_t i = 0; i < count; ++i) {
    CUdeviceptr p = 0;
    if (way == kPlain) p = allocate(bytes);
    if (way == kAsync) BENCH_CHECK(cuMemAllocAsync(&p, bytes, stream));
    device.spin(kKernelNs, stream);
    if (way == kPlain) release(p);
    if (way == kAsync) BENCH_CHECK(cuMemFreeAsync(p, stream));
  }
  BENCH_CHECK(cuStreamSynchronize(stream));
}

// Threads that each own a stream and run the same batch at the same time, when told.
class Crew {
 public:
  Crew(Device& device, size_t count)
      : device_(device),
        begin_(static_cast<std::ptrdiff_t>(count + 1)),
        end_(static_cast<std::ptrdiff_t>(count + 1)) {
    for (size_t i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
  }

  ~Crew() {
    count_ = 0;
    begin_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }

  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Microseconds an iteration, from the common start until the last stream is idle.
  double run(Way way, size_t bytes, size_t count) {
    way_ = way;
    bytes_ = bytes;
    count_ = count;
    begin_.arrive_and_wait();  // they warm up
    end_.arrive_and_wait();
    const double begin = now_ns();
    begin_.arrive_and_wait();
    end_.arrive_and_wait();
    return (now_ns() - begin) / 1e3 / double(count);
  }

 private:
  void work() {
    device_.enter_thread();
    CUstream stream = nullptr;
    BENCH_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (;;) {
      begin_.arrive_and_wait();
      if (count_ == 0) break;
      iterate(device_, way_, bytes_, 5, stream);
      end_.arrive_and_wait();
      begin_.arrive_and_wait();
      iterate(device_, way_, bytes_, count_, stream);
      end_.arrive_and_wait();
    }
    BENCH_CHECK(cuStreamDestroy(stream));
  }

  Device& device_;
  std::barrier<> begin_, end_;
  Way way_ = kAlone;
  size_t bytes_ = 0, count_ = 1;
  std::vector<std::thread> threads_;
};

void kernels(Device& device, Report& report, const Options& options, size_t threads, size_t bytes, int ways) {
  const std::string place =
      std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") + size_name(bytes);
  if (!options.wants(place.c_str())) return;
  Crew crew(device, threads);
  std::vector<double> values[3];
  const int rounds = options.smoke ? 1 : 15;
  for (int round = 0; round < rounds; ++round) {
    // Each goes first, second and last equally often.
    for (int turn = 0; turn < ways; ++turn) {
      const Way way = static_cast<Way>((round + turn) % ways);
      const size_t count = options.smoke ? 3 : (values[way].empty() || values[way].back() > 50 ? 40 : 300);
      values[way].push_back(crew.run(way, bytes, count));
    }
  }
  const double alone = spread_of(values[kAlone]).median;
  for (int way = 0; way < ways; ++way) report.add(place + ": " + kWays[way], "us", spread_of(values[way]));
  for (int way = kPlain; way < ways; ++way) {
    report.add(place + ": " + kWays[way] + " / alone", "x", spread_of(values[way]).median / alone);
  }
}

// The host's time in a call that submits work, with room in the queue: never a wait.
class Submissions {
 public:
  explicit Submissions(Report& report) : report_(report) {
    BENCH_CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  ~Submissions() { cuStreamDestroy(stream_); }
  Submissions(const Submissions&) = delete;
  Submissions& operator=(const Submissions&) = delete;

  CUstream stream() const { return stream_; }

  // `call` with the name that the program uses and with the driver's own function, in turns.
  template <typename Function>
  void measure(const char* name, Function hooked, const char* symbol, size_t calls, size_t batches,
               const std::function<void(Function)>& call) {
    const Function behind = past_hooks(hooked, symbol);
    std::vector<double> values, values_behind;
    for (size_t i = 0; i < batches; ++i) {
      values.push_back(batch(calls, hooked, call));
      if (behind != nullptr) values_behind.push_back(batch(calls, behind, call));
    }
    report_.add(name, "ns", spread_of(values));
    if (behind != nullptr) report_.add(std::string(name) + ", past any hook", "ns", spread_of(values_behind));
  }

 private:
  template <typename Function>
  double batch(size_t calls, Function function, const std::function<void(Function)>& call) {
    const double begin = now_ns();
    for (size_t k = 0; k < calls; ++k) call(function);
    const double took = (now_ns() - begin) / double(calls);
    BENCH_CHECK(cuStreamSynchronize(stream_));
    return took;
  }

  Report& report_;
  CUstream stream_ = nullptr;
};

#define BENCH_NAME_(name) #name
#define BENCH_NAME(name) BENCH_NAME_(name)

void submission(Device& device, Report& report, const Options& options) {
  if (!options.wants("submission")) return;
  Submissions submissions(report);
  const CUstream stream = submissions.stream();
  const CUdeviceptr p = allocate(4096);
  const bool smoke = options.smoke;
  using Launch = decltype(&cuLaunchKernel);
  submissions.measure<Launch>("submission: launch of an empty kernel", &cuLaunchKernel,
                              BENCH_NAME(cuLaunchKernel), 128, smoke ? 2 : 1000,
                              [&](Launch launch) { device.spin(0, stream, launch); });
  // The driver does nothing for no bytes, so what a hook adds to a call stands out.
  using Copy = decltype(&cuMemcpyDtoDAsync);
  submissions.measure<Copy>("submission: copy of no bytes", &cuMemcpyDtoDAsync, BENCH_NAME(cuMemcpyDtoDAsync),
                            1000, smoke ? 1 : 1000, [&](Copy copy) { BENCH_CHECK(copy(p, p, 0, stream)); });
  release(p);
}

}  // namespace

int main(int count, char** words) {
  const Options options = parse(count, words);
  Device device;
  const int ways = keep_freed_memory(device) ? 3 : 2;
  Report report("launch", options);
  submission(device, report, options);
  for (size_t bytes : {size_t{64} << 10, size_t{1} << 20}) {
    for (size_t threads : {size_t{1}, size_t{2}, size_t{4}, size_t{8}}) {
      if (options.smoke && threads > 2) continue;
      kernels(device, report, options, threads, bytes, ways);
    }
  }
  return 0;
}
