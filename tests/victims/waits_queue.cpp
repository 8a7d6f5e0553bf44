// Cases of `waits` in which a thread stands in a launch because the stream's queue is full (on an H200 1020
// pieces of work): other threads' submissions to other streams go on, and are what it waits for.
#include <atomic>
#include <chrono>
#include <thread>

#include "waits.hpp"

namespace waits {
namespace {

constexpr size_t kBytes = 8 * kMiB;
constexpr int kNearlyFull = 1000, kMoreThanFull = 1100;
constexpr unsigned kByte = 1, kWord = 0x01010101;

// Behind a kernel that waits for a word, launches until the queue is full, and then some.
class FullQueue {
 public:
  FullQueue(const Device& d, const Word& word, CUstream stream) : scratch_(d.alloc(kBytes)) {
    d.await(word.address(), kWord, stream);
    thread_ = std::thread([this, &d, stream] {
      d.enter();
      for (; given_ < kMoreThanFull; ++given_) d.fill(scratch_, 4, 1, stream);
    });
    while (given_ < kNearlyFull) std::this_thread::yield();
  }
  ~FullQueue() { thread_.join(); }
  FullQueue(const FullQueue&) = delete;
  FullQueue& operator=(const FullQueue&) = delete;

  // Until the launch stands, most likely; asking gives the simulated device time.
  static void let_it_fill(CUstream idle) {
    for (int i = 0; i < 100; ++i) {
      const CUresult result = cuStreamQuery(idle);
      if (result != CUDA_ERROR_NOT_READY) MUST(result);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

 private:
  CUdeviceptr scratch_;
  std::atomic<int> given_{0};
  std::thread thread_;
};

// Memory whose old work takes long and is not over, as far as a pool lets that be.
void leave_memory(const Device& d, CUstream stream) {
  constexpr int kSpins = 800;
  const CUdeviceptr old = d.alloc(kBytes);
  for (int i = 0; i < kSpins; ++i) d.spin(kLongNs / kSpins, stream);
  d.use(old, kBytes, 71, stream);
  d.free(old);
}

// A second thread comes to the stream with memory that was freed; a third releases both. (Under the driver
// the second one stands in its allocation.)
int second_thread_comes() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream(), s3 = d.stream();
  leave_memory(d, s3);
  {
    const FullQueue full(d, word, s1);
    FullQueue::let_it_fill(s2);
    std::thread second([&] {
      d.enter();
      d.use(d.alloc(kBytes), kBytes, 72, s1);
    });
    FullQueue::let_it_fill(s2);
    d.fill(word.address(), sizeof kWord, kByte, s2);
    second.join();
  }
  return d.finish();
}

// A thread frees in the order of another stream, and then releases it.
int frees_in_order() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  const CUdeviceptr p = d.alloc(kBytes), q = d.alloc(64 * kKiB);
  d.use(p, kBytes, 73, s2);
  d.use(q, 64 * kKiB, 74, s2);
  {
    const FullQueue full(d, word, s1);
    FullQueue::let_it_fill(s2);
    MUST(cuMemFreeAsync(p, s2));
    MUST(cuMemFreeAsync(q, s2));
    d.fill(word.address(), sizeof kWord, kByte, s2);
  }
  return d.finish();
}

}  // namespace

Cases queue_cases() {
  return {{"full-queue", second_thread_comes}, {"full-queue-freed-on-stream", frees_in_order}};
}

}  // namespace waits
