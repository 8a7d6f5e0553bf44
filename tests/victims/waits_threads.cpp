// Cases of `waits` with more than one thread, context or device. Threads take turns by semaphores, so that
// each run is the same one.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "waits.hpp"

namespace waits {
namespace {

constexpr size_t kBytes = 64 * kKiB;

// One thread frees, another's stream then waits, and the first allocates again and releases it.
int same_thread_allocates(bool per_thread_streams) {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  Semaphore freed, waiting;
  std::thread other([&] {
    d.enter();
    const CUstream mine = per_thread_streams ? CU_STREAM_PER_THREAD : d.stream();
    d.use(d.alloc(kBytes), kBytes, 41, mine);
    freed.wait();
    word.wait_on(mine);
    waiting.post();
    MUST(cuStreamSynchronize(mine));
  });
  const CUstream mine = per_thread_streams ? CU_STREAM_PER_THREAD : d.stream();
  for (int i = 0; i < 4; ++i) d.live_and_die(kBytes, {mine});
  freed.post();
  waiting.wait();
  const CUdeviceptr p = d.alloc(kBytes);
  d.use(p, kBytes, 42, mine);
  word.write_on(mine);
  other.join();
  return d.finish();
}

// The stream that waits belongs to the thread that freed; another allocates and releases it.
int other_thread_allocates() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  Semaphore waiting;
  std::thread other([&] {
    d.enter();
    const CUstream mine = d.stream();
    waiting.wait();
    const CUdeviceptr p = d.alloc(kBytes);
    d.use(p, kBytes, 43, mine);
    word.write_on(mine);
  });
  const CUstream mine = d.stream();
  for (int i = 0; i < 4; ++i) d.live_and_die(kBytes, {mine});
  word.wait_on(mine);
  waiting.post();
  MUST(cuStreamSynchronize(mine));
  other.join();
  return d.finish();
}

// A thread sits in a free, which the driver holds there until the other thread's work has run: that one must
// not be given the freed memory on terms that make it wait for the same. `by_kernel`: nothing in the program
// looks like streams that wait for memory. The block may be freed before or after the other one asks, so it
// asks often.
int free_waits(bool by_kernel) {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  constexpr unsigned kByte = 1, kWord = 0x01010101;
  const CUstream s1 = d.stream(), s2 = d.stream();
  const CUdeviceptr old = d.alloc(kBytes);
  d.use(old, kBytes, 44, s1);
  MUST(cuCtxSynchronize());
  if (by_kernel) {
    d.await(word.address(), kWord, s1);
  } else {
    word.wait_on(s1, kWord);
  }
  d.fill(old, kBytes, 45, s1);
  std::thread other([&] {
    d.enter();
    d.free(old);
  });
  for (int i = 0; i < 400; ++i) {
    d.use(d.alloc(kBytes), kBytes, 46, s2);
    // Something that the simulated device and a real one are given time by.
    const CUresult result = cuStreamQuery(s2);
    if (result != CUDA_ERROR_NOT_READY) MUST(result);
  }
  d.fill(word.address(), sizeof kWord, kByte, s2);
  other.join();
  return d.finish();
}

// Two contexts of one device. A free in one does not wait for the other.
int two_contexts() {
  MUST(cuInit(0));
  const Device a;
  const Word word;
  const CUstream s1 = a.stream();
  a.live_and_die(kBytes, {s1});
  const Device b(0, true);
  const CUstream s2 = b.stream();
  b.live_and_die(kBytes, {s2});
  a.enter();
  word.wait_on(s1);
  a.use(a.alloc(kBytes), kBytes, 47, s1);
  b.enter();
  for (int i = 0; i < 4; ++i) {
    const CUdeviceptr p = b.alloc(kBytes);
    b.use(p, kBytes, 48, s2);
    b.free(p);
  }
  const CUdeviceptr p = b.alloc(8 * kMiB);
  b.use(p, 8 * kMiB, 49, s2);
  MUST(cuCtxSynchronize());
  word.write_on(s2);
  return b.finish() + a.finish() != 0 ? 1 : 0;
}

// In one context most of the device is free again, a little was freed after that, and a kernel waits for the
// host; which asks for most of the device in another context before it answers.
int two_contexts_full() {
  MUST(cuInit(0));
  const Device a;
  const Word word;
  const CUstream s1 = a.stream();
  const Device b(0, true);
  const CUstream s2 = b.stream();
  a.enter();
  size_t room = 0;
  MUST(cuMemGetInfo(&room, nullptr));
  const size_t part = room / 10 / (2 * kMiB) * (2 * kMiB);
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 7; ++i) {
    blocks.push_back(a.alloc(part));
    a.use(blocks.back(), kMiB, 50, s1);
  }
  for (const CUdeviceptr p : blocks) a.free(p);
  a.live_and_die(100 * kKiB, {s1});
  a.await(word.address(), 1, s1);
  b.enter();
  const CUdeviceptr p = b.alloc(6 * part);
  b.use(p, kMiB, 51, s2);
  MUST(cuStreamSynchronize(s2));
  word.set(1);
  return b.finish() + a.finish() != 0 ? 1 : 0;
}

bool is_had(CUresult result) {
  if (result != CUDA_ERROR_OUT_OF_MEMORY) MUST(result);
  return result == CUDA_SUCCESS;
}

void ask_plainly(const Device& d, size_t bytes) {
  CUdeviceptr p = 0;
  if (is_had(cuMemAlloc(&p, bytes))) d.free(p);
}

void ask_in_a_capture(const Device& d, size_t bytes) {
  const CUstream stream = d.stream();
  CUgraph graph = nullptr;
  CUdeviceptr p = 0;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  const bool had = is_had(cuMemAlloc(&p, bytes));
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphDestroy(graph));
  if (had) d.free(p);
}

// The call names a device and no context.
void ask_for_a_handle(const Device& d, size_t bytes) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  if (is_had(cuMemCreate(&handle, bytes, &properties, 0))) MUST(cuMemRelease(handle));
  d.enter();
}

void ask_without_a_context(const Device& d, size_t bytes) {
  MUST(cuCtxSetCurrent(nullptr));
  ask_for_a_handle(d, bytes);
}

// Most of the device is freed in one context behind a kernel that waits for the host. The thread that it
// waits for first asks for more than is left in another context, and takes a refusal for an answer.
int two_contexts_refused(const std::function<void(const Device&, size_t)>& ask) {
  MUST(cuInit(0));
  const Device a;
  const Word word;
  const Device b(0, true);
  const CUstream s2 = b.stream();
  const size_t part = sixteenth();
  const CUdeviceptr most = b.alloc(12 * part);
  Semaphore submitted;
  std::thread other([&] {
    b.enter();
    b.await(word.address(), 1, s2);
    b.fill(most, kMiB, 52, s2);
    submitted.post();
    b.free(most);
  });
  submitted.wait();
  a.enter();
  // Before or after the free.
  for (int i = 0; i < 4; ++i) ask(a, 8 * part);
  word.set(1);
  other.join();
  return b.finish() + a.finish() != 0 ? 1 : 0;
}

// In one context memory lies free; more is freed behind a kernel that waits for the host, taken again and
// used. The thread that the kernel waits for first asks in another context for what it can have only with the
// former.
int two_contexts_refused_beside_reuse() {
  MUST(cuInit(0));
  const Device a;
  const Word word;
  const Device b(0, true);
  const CUstream s2 = b.stream();
  const size_t part = sixteenth();
  const CUdeviceptr free = b.alloc(2 * part), most = b.alloc(8 * part);
  b.fill(free, kMiB, 54, s2);
  b.free(free);
  Semaphore submitted;
  std::atomic<bool> is_reused{false};
  std::thread other([&] {
    b.enter();
    b.await(word.address(), 1, s2);
    b.fill(most, kMiB, 55, s2);
    submitted.post();
    b.free(most);
    b.use(b.alloc(8 * part), kMiB, 56, s2);
    is_reused = true;
  });
  submitted.wait();
  // Under the driver it stands in the free.
  wait_a_while([&] { return is_reused.load(); });
  a.enter();
  ask_plainly(a, 7 * part);
  word.set(1);
  other.join();
  return b.finish() + a.finish() != 0 ? 1 : 0;
}

// In one context a kernel waits for a word there, memory is freed behind it, taken again and used. A stream
// of another context writes the word.
int two_contexts_word() {
  MUST(cuInit(0));
  const Device a;
  const CUstream s1 = a.stream(), s2 = a.stream();
  const Device b(0, true);
  const CUstream sb = b.stream();
  a.enter();
  const CUdeviceptr word = a.alloc(4 * kKiB), p = a.alloc(24 * kMiB);
  MUST(cuMemsetD32(word, 0, 1));
  MUST(cuCtxSynchronize());
  b.enter();
  if (cuStreamWriteValue32(sb, word, 0, CU_STREAM_WRITE_VALUE_DEFAULT) != CUDA_SUCCESS)
    skip("the driver writes no value of another context");
  MUST(cuStreamSynchronize(sb));
  a.enter();
  a.await(word, 1, s1);
  a.use(p, kMiB, 52, s1);
  std::atomic<bool> is_free{false};
  std::thread writer([&] {
    b.enter();
    // The driver's free waits for the word.
    const auto begin = std::chrono::steady_clock::now();
    while (!is_free && std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(200))
      std::this_thread::yield();
    MUST(cuStreamWriteValue32(sb, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    MUST(cuStreamSynchronize(sb));
  });
  a.free(p);
  a.use(a.alloc(24 * kMiB), kMiB, 53, s2);
  is_free = true;
  writer.join();
  return b.finish() + a.finish() != 0 ? 1 : 0;
}

// A thread captures its default stream of one context while that of another context is captured, too.
int two_contexts_captured(unsigned first_to_end) {
  MUST(cuInit(0));
  const Device a;
  const Device b(0, true);
  const Device* const both[] = {&a, &b};
  const CUstream mine = CU_STREAM_PER_THREAD;
  // Freed, it gets a seal at once.
  constexpr size_t kLarge = 24 * kMiB;
  CUdeviceptr p[2];
  CUstream s[2];
  for (unsigned i : {0u, 1u}) {
    both[i]->enter();
    s[i] = both[i]->stream();
    p[i] = both[i]->alloc(kLarge);
    MUST(cuStreamBeginCapture(mine, CU_STREAM_CAPTURE_MODE_RELAXED));
  }
  for (unsigned i : {first_to_end, 1 - first_to_end}) {
    const Device& d = *both[i];
    d.enter();
    CUgraph graph = nullptr;
    MUST(cuStreamEndCapture(mine, &graph));
    MUST(cuGraphDestroy(graph));
    // A free waits for all work here, which ends no capture.
    for (int round = 0; round < 3; ++round) {
      for (unsigned k : {0u, 1u}) {
        both[k]->enter();
        both[k]->fill(p[k], kBytes, 57, s[k]);
        both[k]->free(p[k]);
        p[k] = both[k]->alloc(kLarge);
        both[k]->use(p[k], kBytes, 58, s[k]);
      }
    }
  }
  return a.finish() + b.finish() != 0 ? 1 : 0;
}

// A host function asks for the end of its context, which the driver refuses, and all goes on as before.
int context_is_kept() {
  MUST(cuInit(0));
  const Device a;
  const Device b(0, true);
  const CUstream s1 = b.stream();
  const CUdeviceptr kept = b.alloc(kBytes), p = b.alloc(kBytes);
  b.fill(kept, kBytes, 59, s1);
  struct Asked {
    CUcontext context;
    CUresult answer;
  } asked{b.context(), CUDA_SUCCESS};
  const auto ask = [](void* data) {
    auto* const it = static_cast<Asked*>(data);
    it->answer = cuCtxDestroy(it->context);
  };
  MUST(cuLaunchHostFunc(s1, ask, &asked));
  MUST(cuStreamSynchronize(s1));
  if (asked.answer != CUDA_ERROR_NOT_PERMITTED) die("cuCtxDestroy in a host function", asked.answer);
  b.use(p, kBytes, 60, s1);
  b.free(p);
  b.use(b.alloc(kBytes), kBytes, 61, b.stream());
  b.check(kept, kBytes, 59, s1);
  b.free(kept);
  return a.finish() + b.finish() != 0 ? 1 : 0;
}

// One process for several devices, as with NCCL: device 0 waits for device 1, which allocates first.
int two_devices(Places places) {
  const Pair pair(places);
  const Device &a = pair[0], &b = pair[1];
  const Word word;
  a.enter();
  const CUstream s1 = a.stream();
  for (int i = 0; i < 3; ++i) a.live_and_die(kBytes, {s1});
  b.enter();
  const CUstream s2 = b.stream();
  for (int i = 0; i < 3; ++i) b.live_and_die(kBytes, {s2});
  a.enter();
  word.wait_on(s1);
  a.use(a.alloc(kBytes), kBytes, 50, s1);
  b.enter();
  const CUdeviceptr p = b.alloc(kBytes);
  b.use(p, kBytes, 51, s2);
  b.free(p);
  b.use(b.alloc(kBytes), kBytes, 52, s2);
  MUST(cuStreamSynchronize(s2));
  word.write_on(s2);
  return pair.finish();
}

}  // namespace

Cases thread_cases() {
  return {{"threads-same", [] { return same_thread_allocates(false); }},
          {"threads-per-thread", [] { return same_thread_allocates(true); }},
          {"threads-other", other_thread_allocates},
          {"threads-free", [] { return free_waits(false); }},
          {"threads-free-kernel", [] { return free_waits(true); }},
          {"two-contexts", two_contexts},
          {"two-contexts-full", two_contexts_full},
          {"two-contexts-refused", [] { return two_contexts_refused(ask_plainly); }},
          {"two-contexts-refused-captured", [] { return two_contexts_refused(ask_in_a_capture); }},
          {"two-contexts-refused-handle", [] { return two_contexts_refused(ask_for_a_handle); }},
          {"two-contexts-refused-outside", [] { return two_contexts_refused(ask_without_a_context); }},
          {"two-contexts-refused-reuse", two_contexts_refused_beside_reuse},
          {"two-contexts-word", two_contexts_word},
          {"two-contexts-captured", [] { return two_contexts_captured(0); }},
          {"two-contexts-captured-last", [] { return two_contexts_captured(1); }},
          {"context-kept", context_is_kept},
          {"two-devices", [] { return two_devices(Places::kDevices); }},
          {"two-devices-peers", [] { return two_devices(Places::kPeers); }}};
}

}  // namespace waits
