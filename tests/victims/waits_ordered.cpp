// Cases of `waits`: memory of cuMemAlloc's is freed in the order of a stream, or while a stream captures.
#include <atomic>
#include <future>
#include <thread>

#include "waits.hpp"

namespace waits {

namespace {

// A kernel waits for the host, which takes and frees more than half of the device again and again: in the
// order of another stream, which it waits for.
int had_again() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  const size_t part = sixteenth();
  d.await(word.address(), 1, s1);
  for (unsigned i = 0; i < 4; ++i) {
    const CUdeviceptr p = d.alloc(part * 9);
    d.use(p, kMiB, 20 + i, s2);
    MUST(cuMemFreeAsync(p, s2));
    MUST(cuStreamSynchronize(s2));
  }
  word.set(1);
  return d.finish();
}

// The same with many blocks at once.
int many() {
  constexpr unsigned kCount = 500;
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  const size_t bytes = sixteenth() * 14 / kCount / (2 * kMiB) * (2 * kMiB);
  d.await(word.address(), 1, s1);
  for (unsigned turn = 0; turn < 2; ++turn) {
    std::vector<CUdeviceptr> all;
    for (unsigned i = 0; i < kCount; ++i) all.push_back(d.alloc(bytes));
    for (const CUdeviceptr p : all) d.use(p, 4 * kKiB, 1 + turn, s2);
    for (const CUdeviceptr p : all) MUST(cuMemFreeAsync(p, s2));
    MUST(cuStreamSynchronize(s2));
  }
  word.set(1);
  return d.finish();
}

// The same while another thread launches graphs into the stream, with hardly a gap.
int beside_graphs() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  const size_t part = sixteenth();
  const CUdeviceptr own = d.alloc(512);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  MUST(cuStreamBeginCapture(s2, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  d.fill(own, 512, 1, s2);
  MUST(cuStreamEndCapture(s2, &graph));
  MUST(cuGraphInstantiate(&exec, graph, 0));
  std::atomic<bool> is_over{false};
  d.await(word.address(), 1, s1);
  std::thread launcher([&] {
    d.enter();
    for (unsigned i = 1; !is_over; ++i) {
      MUST(cuGraphLaunch(exec, s2));
      if (i % 16 == 0) MUST(cuStreamSynchronize(s2));
    }
  });
  for (unsigned i = 0; i < 40; ++i) {
    const CUdeviceptr p = d.alloc(2 * part);
    d.use(p, 4 * kKiB, 20 + i, s2);
    MUST(cuMemFreeAsync(p, s2));
    MUST(cuStreamSynchronize(s2));
  }
  is_over = true;
  launcher.join();
  word.set(1);
  return d.finish();
}

// Most of the device is freed behind a kernel that waits for the host, which asks for as much and is refused
// before it answers.
int refused() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream();
  const size_t part = sixteenth();
  const CUdeviceptr p = d.alloc(12 * part);
  d.use(p, kMiB, 1, s1);
  d.await(word.address(), 1, s1);
  size_t before = 0, after = 0;
  MUST(cuMemGetInfo(&before, nullptr));
  MUST(cuMemFreeAsync(p, s1));
  MUST(cuMemGetInfo(&after, nullptr));
  CUdeviceptr q = 0;
  const CUresult answer = cuMemAlloc(&q, 12 * part);
  word.set(1);
  if (answer != CUDA_ERROR_OUT_OF_MEMORY) return 1;
  return after <= before ? d.finish() : 1;
}

// A stream of another context copies from the memory, behind something that takes long, and frees it.
int by_another_context() {
  constexpr size_t kBytes = 8 * kMiB;
  MUST(cuInit(0));
  const Device a;
  const CUstream sa = a.stream();
  const Device b(0, true);
  const CUstream sb = b.stream();
  const CUdeviceptr copy = b.alloc(kBytes);
  for (unsigned i = 1; i < 10; ++i) {
    a.enter();
    const CUdeviceptr p = a.alloc(kBytes);
    a.use(p, kBytes, i, sa);
    MUST(cuStreamSynchronize(sa));
    b.enter();
    b.spin(kLongNs / 10, sb);
    MUST(cuMemcpyAsync(copy, p, kBytes, sb));
    MUST(cuMemFreeAsync(p, sb));
    a.enter();
    const CUdeviceptr q = a.alloc(kBytes);
    a.use(q, kBytes, 100 + i, sa);
    MUST(cuMemFreeAsync(q, sa));
    MUST(cuStreamSynchronize(sa));
    b.enter();
    b.check(copy, kBytes, i, sb);
  }
  return b.finish() + a.finish() != 0 ? 1 : 0;
}

// The same again and again with an eighth of the device: nothing of it is lost.
int by_another_context_often() {
  MUST(cuInit(0));
  const Device a;
  const CUstream sa = a.stream();
  const size_t part = sixteenth();
  const Device b(0, true);
  const CUstream sb = b.stream();
  for (unsigned i = 1; i < 30; ++i) {
    a.enter();
    const CUdeviceptr p = a.alloc(2 * part);
    a.use(p, kMiB, i, sa);
    MUST(cuStreamSynchronize(sa));
    b.enter();
    b.spin(1000, sb);
    MUST(cuMemFreeAsync(p, sb));
    MUST(cuStreamSynchronize(sb));
  }
  return b.finish() + a.finish() != 0 ? 1 : 0;
}

// Two threads free on their own default streams, which have one handle; one of them waits for the host.
int by_two_threads() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const size_t part = sixteenth();
  const CUdeviceptr small = d.alloc(4 * kMiB);
  std::promise<void> is_free, may_end;
  std::thread other([&] {
    d.enter();
    d.await(word.address(), 1, CU_STREAM_PER_THREAD);
    MUST(cuMemFreeAsync(small, CU_STREAM_PER_THREAD));
    is_free.set_value();
    may_end.get_future().wait();
  });
  is_free.get_future().wait();
  for (unsigned i = 0; i < 8; ++i) {
    const CUdeviceptr p = d.alloc(5 * part);
    d.use(p, kMiB, 1 + i, CU_STREAM_PER_THREAD);
    MUST(cuMemFreeAsync(p, CU_STREAM_PER_THREAD));
    MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }
  word.set(1);
  may_end.set_value();
  other.join();
  return d.finish();
}

// Memory that is freed while a stream captures is had again in that capture.
int in_a_capture(bool is_ordered) {
  MUST(cuInit(0));
  const Device d;
  const CUstream s1 = d.stream(), s2 = d.stream();
  const size_t part = sixteenth();
  const CUdeviceptr small = d.alloc(kMiB), p = d.alloc(12 * part);
  d.spin(kLongNs / 10, s2);
  d.use(p, kMiB, 1, s2);
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_RELAXED));
  d.fill(small, kMiB, 2, s1);
  if (is_ordered) {
    MUST(cuMemFreeAsync(p, s2));
    MUST(cuStreamSynchronize(s2));
  } else {
    d.free(p);
  }
  const CUdeviceptr q = d.alloc(12 * part);
  CUgraph graph = nullptr;
  MUST(cuStreamEndCapture(s1, &graph));
  d.use(q, kMiB, 3, s2);
  return d.finish();
}

// The same by a thread that has no context, while another one captures.
int in_a_capture_elsewhere() {
  MUST(cuInit(0));
  const Device d;
  const CUstream s1 = d.stream();
  const CUdeviceptr small = d.alloc(kMiB), p = d.alloc(kMiB);
  d.use(p, kMiB, 1, s1);
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  d.fill(small, kMiB, 2, s1);
  std::thread([&] { d.free(p); }).join();
  CUgraph graph = nullptr;
  MUST(cuStreamEndCapture(s1, &graph));
  return d.finish();
}

}  // namespace

Cases ordered_cases() {
  return {{"freed-on-stream", had_again},
          {"freed-on-stream-many", many},
          {"freed-on-stream-beside-graphs", beside_graphs},
          {"freed-on-stream-refused", refused},
          {"freed-by-another-context", by_another_context},
          {"freed-by-another-context-often", by_another_context_often},
          {"freed-on-threads-streams", by_two_threads},
          {"freed-in-capture", [] { return in_a_capture(false); }},
          {"freed-on-stream-in-capture", [] { return in_a_capture(true); }},
          {"freed-in-capture-elsewhere", in_a_capture_elsewhere}};
}

}  // namespace waits
