// Cases of `waits` in which a thread stands in a launch because the stream's queue is full (on an H200 1020
// pieces of work): other threads' submissions to other streams go on, and are what it waits for. Nothing
// tells that a call stands, so the cases give it time; one that comes too early ends well, too.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "waits.hpp"

namespace waits {
namespace {

using std::chrono::milliseconds;

constexpr size_t kBytes = 8 * kMiB;
constexpr size_t kScarce = 24 * kMiB;  // so much that it is rather reused than had anew
constexpr int kMoreThanFull = 1100;
constexpr unsigned kByte = 1, kWord = 0x01010101;
constexpr milliseconds kAMoment{20}, kLonger{100};

// Behind a kernel that waits for a word, launches until the queue is full, and then some.
class FullQueue {
 public:
  FullQueue(const Device& d, const Word& word, CUdeviceptr scratch, CUstream stream) {
    d.await(word.address(), kWord, stream);
    thread_ = std::thread([this, &d, scratch, stream] {
      d.enter();
      for (; given_ < kMoreThanFull; ++given_) d.fill(scratch, 4, 1, stream);
    });
    // Until the launch stands, most likely.
    for (int before = -1; before != given_;) {
      before = given_;
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  ~FullQueue() { thread_.join(); }
  FullQueue(const FullQueue&) = delete;
  FullQueue& operator=(const FullQueue&) = delete;

 private:
  std::atomic<int> given_{0};
  std::thread thread_;
};

// Memory whose old work goes on for a while after the free, as far as a pool lets that be.
class LongWork {
 public:
  LongWork(const Device& d, CUstream stream, size_t bytes = kBytes) {
    const CUdeviceptr old = d.alloc(bytes);
    d.await(word_.address(), 1, stream);
    d.use(old, kBytes, 71, stream);
    thread_ = std::thread([this] {
      std::this_thread::sleep_for(kLonger);
      word_.set(1);
    });
    d.free(old);
  }
  ~LongWork() { thread_.join(); }
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;

 private:
  Word word_;
  std::thread thread_;
};

// A second thread comes to the stream with memory that was freed; a third releases both. (Under the driver
// the second one stands in its allocation.)
int second_thread_comes() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream(), s3 = d.stream();
  const CUdeviceptr scratch = d.alloc(kBytes);
  {
    const LongWork work(d, s3);
    const FullQueue full(d, word, scratch, s1);
    std::thread second([&] {
      d.enter();
      d.use(d.alloc(kBytes), kBytes, 72, s1);
    });
    std::this_thread::sleep_for(kAMoment);
    d.fill(word.address(), sizeof kWord, kByte, s2);
    second.join();
  }
  return d.finish();
}

// A second thread frees, for which the driver waits; a third submits two things elsewhere, the latter of
// which releases both.
int second_thread_frees() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream(), s3 = d.stream();
  const CUdeviceptr scratch = d.alloc(kBytes), p = d.alloc(kBytes);
  {
    const LongWork work(d, s3);
    d.use(p, kBytes, 75, s3);
    const FullQueue full(d, word, scratch, s1);
    std::thread second([&] {
      d.enter();
      d.free(p);
    });
    std::this_thread::sleep_for(kAMoment);
    d.fill(scratch + kMiB, 4, 1, s2);
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
  const CUdeviceptr scratch = d.alloc(kBytes), p = d.alloc(kBytes), q = d.alloc(64 * kKiB);
  d.use(p, kBytes, 73, s2);
  d.use(q, 64 * kKiB, 74, s2);
  {
    const FullQueue full(d, word, scratch, s1);
    MUST(cuMemFreeAsync(p, s2));
    MUST(cuMemFreeAsync(q, s2));
    d.fill(word.address(), sizeof kWord, kByte, s2);
  }
  return d.finish();
}

// The queue is one context's; a thread of another one comes with memory of its own that was freed, and
// releases it.
int other_context_releases(Places places) {
  const Pair pair(places);
  const Device &a = pair[0], &b = pair[1];
  const Word word;
  a.enter();
  const CUstream s1 = a.stream();
  const CUdeviceptr scratch = a.alloc(kMiB);
  b.enter();
  const CUstream s2 = b.stream(), s3 = b.stream();
  {
    const LongWork work(b, s3, kScarce);
    a.enter();
    const FullQueue full(a, word, scratch, s1);
    b.enter();
    const CUdeviceptr p = b.alloc(kScarce);
    b.use(p, kMiB, 76, s2);
    b.fill(word.address(), sizeof kWord, kByte, s2);
    b.free(p);
  }
  return pair.finish();
}

// A thread of the queue's context comes with memory that was freed, and may stand as well. One of another
// context does `what` there before it releases both.
int beside_other_context(Places places, const std::function<void(const Device&)>& what) {
  const Pair pair(places);
  const Device &a = pair[0], &b = pair[1];
  const Word word;
  a.enter();
  const CUstream s1 = a.stream(), s2 = a.stream(), s3 = a.stream();
  const CUdeviceptr scratch = a.alloc(kMiB);
  {
    const LongWork work(a, s3, kScarce);
    const FullQueue full(a, word, scratch, s1);
    std::thread second([&] {
      a.enter();
      const CUdeviceptr p = a.alloc(kScarce);
      a.use(p, kMiB, 77, s2);
      a.free(p);
    });
    std::this_thread::sleep_for(kAMoment);
    b.enter();
    what(b);
    word.set(kWord);
    second.join();
  }
  return pair.finish();
}

// The queue's context has memory that was freed. A thread of another one takes what the device has, is
// refused more, and only then releases the queue.
int other_context_is_refused() {
  const Pair pair(Places::kContexts);
  const Device &a = pair[0], &b = pair[1];
  const Word word;
  a.enter();
  const CUstream s1 = a.stream();
  const CUdeviceptr scratch = a.alloc(kMiB), p = a.alloc(kScarce);
  a.use(p, kMiB, 79, s1);
  a.free(p);
  b.enter();
  const size_t part = sixteenth();
  {
    a.enter();
    const FullQueue full(a, word, scratch, s1);
    b.enter();
    for (const size_t bytes : {part, kBytes}) {
      CUdeviceptr q = 0;
      CUresult result = CUDA_SUCCESS;
      while (result == CUDA_SUCCESS) result = cuMemAlloc(&q, bytes);
      if (result != CUDA_ERROR_OUT_OF_MEMORY) MUST(result);
    }
    word.set(kWord);
  }
  return pair.finish();
}

// The first memory of a context that has none, and of one that has.
void allocate(const Device& d) {
  d.alloc(kBytes);
  CUdevice device = 0;
  CUcontext fresh = nullptr;
  MUST(cuCtxGetDevice(&device));
  MUST(cuCtxCreate(&fresh, nullptr, 0, device));
  d.alloc(kBytes);
}

void capture(const Device& d) {
  const CUstream stream = d.stream();
  const CUdeviceptr p = d.alloc(kMiB);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  d.use(p, kMiB, 78, stream);
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiate(&exec, graph, 0));
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamSynchronize(stream));
}

}  // namespace

Cases queue_cases() {
  return {{"full-queue", second_thread_comes},
          {"full-queue-freed", second_thread_frees},
          {"full-queue-freed-on-stream", frees_in_order},
          {"full-queue-contexts", [] { return other_context_releases(Places::kContexts); }},
          {"full-queue-peers", [] { return other_context_releases(Places::kPeers); }},
          {"full-queue-contexts-refused", other_context_is_refused},
          {"full-queue-contexts-allocate", [] { return beside_other_context(Places::kContexts, allocate); }},
          {"full-queue-peers-allocate", [] { return beside_other_context(Places::kPeers, allocate); }},
          {"full-queue-contexts-capture", [] { return beside_other_context(Places::kContexts, capture); }},
          {"full-queue-peers-capture", [] { return beside_other_context(Places::kPeers, capture); }}};
}

}  // namespace waits
