// Cases of `waits`: who waits for whom, in one thread. Host functions, kernels and streams wait for the host
// or for each other; memory changes owners meanwhile.
#include <semaphore.h>

#include "waits.hpp"

namespace waits {
namespace {

// A host function on S1 waits until the host has S2's result.
int host_function(bool old) {
  MUST(cuInit(0));
  const Device d;
  const CUstream s1 = d.stream(), s2 = d.stream();
  static sem_t answer;
  sem_init(&answer, 0, 0);
  if (old) d.live_and_die(kMiB, {s1, s2});
  const CUhostFn wait = [](void* semaphore) { sem_wait(static_cast<sem_t*>(semaphore)); };
  MUST(cuLaunchHostFunc(s1, wait, &answer));
  const CUdeviceptr p = d.alloc(kMiB);
  d.use(p, kMiB, 21, s2);
  unsigned char first = 0;
  MUST(cuMemcpyDtoHAsync(&first, p, 1, s2));
  MUST(cuStreamSynchronize(s2));
  sem_post(&answer);
  return first != 21 ? 1 : d.finish();
}

int host_kernel(bool old) {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  if (old) d.live_and_die(kMiB, {s1});
  d.await(word.address(), 1, s1);
  const CUdeviceptr p = d.alloc(kMiB);
  d.use(p, kMiB, 22, s2);
  MUST(cuStreamSynchronize(s2));
  const CUdeviceptr q = d.alloc(8 * kMiB);
  d.use(q, 8 * kMiB, 23, s2);
  MUST(cuStreamSynchronize(s2));
  word.set(1);
  return d.finish();
}

// The same with work that is older than the program's first memory, which then goes in the order of S2: no
// free of this program waits.
int older_than_memory() {
  MUST(cuInit(0));
  CUdevice device = 0;
  CUcontext context = nullptr;
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  CUstream s1 = nullptr, s2 = nullptr;
  MUST(cuStreamCreate(&s1, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&s2, CU_STREAM_NON_BLOCKING));
  static sem_t answer;
  sem_init(&answer, 0, 0);
  const CUhostFn wait = [](void* semaphore) { sem_wait(static_cast<sem_t*>(semaphore)); };
  MUST(cuLaunchHostFunc(s1, wait, &answer));
  CUdeviceptr p = 0;
  MUST(cuMemAlloc(&p, 32 * kMiB));
  MUST(cuMemFreeAsync(p, s2));
  MUST(cuMemAlloc(&p, 64 * kMiB));
  MUST(cuMemsetD8Async(p, 7, 64 * kMiB, s2));
  sem_post(&answer);
  MUST(cuCtxSynchronize());
  return 0;
}

// The host asks again and again instead of waiting.
int host_polls() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  d.live_and_die(kMiB, {s1, s2});
  d.await(word.address(), 1, s1);
  const CUdeviceptr p = d.alloc(kMiB);
  d.use(p, kMiB, 24, s2);
  while (true) {
    const CUresult result = cuStreamQuery(s2);
    if (result == CUDA_SUCCESS) break;
    if (result != CUDA_ERROR_NOT_READY) MUST(result);
  }
  word.set(1);
  return d.finish();
}

// S1 waits for S2, which then waits for S1.
int both_ways() {
  MUST(cuInit(0));
  const Device d;
  const Word first, second;
  const CUstream s1 = d.stream(), s2 = d.stream();
  for (int i = 0; i < 4; ++i) d.live_and_die(64 * kKiB, {s1, s2});
  first.wait_on(s1);
  d.use(d.alloc(64 * kKiB), 64 * kKiB, 25, s1);
  d.use(d.alloc(64 * kKiB), 64 * kKiB, 26, s2);
  first.write_on(s2);
  second.wait_on(s2);
  d.use(d.alloc(64 * kKiB), 64 * kKiB, 27, s2);
  d.use(d.alloc(64 * kKiB), 64 * kKiB, 28, s1);
  second.write_on(s1);
  return d.finish();
}

// The same by a list of operations, 64 bits wide.
int batch() {
  MUST(cuInit(0));
  const Device d;
  const Word first, second;
  const CUstream s1 = d.stream(), s2 = d.stream();
  d.live_and_die(kMiB, {s1, s2});
  CUstreamBatchMemOpParams list[2] = {};
  list[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  list[0].waitValue.address = first.address();
  list[0].waitValue.value64 = 7;
  list[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  list[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  list[1].writeValue.address = second.address();
  list[1].writeValue.value64 = 8;
  MUST(cuStreamBatchMemOp(s1, 2, list, 0));
  d.use(d.alloc(kMiB), kMiB, 29, s2);
  MUST(cuStreamWriteValue64(s2, first.address(), 9, CU_STREAM_WRITE_VALUE_DEFAULT));
  MUST(cuStreamWaitValue64(s2, second.address(), 8, CU_STREAM_WAIT_VALUE_EQ));
  d.use(d.alloc(kMiB), kMiB, 30, s2);
  return d.finish();
}

// S3 waits for S1 by an event, S1 for S2 by a word; S2 gets its memory last.
int events() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream(), s3 = d.stream();
  for (int i = 0; i < 4; ++i) d.live_and_die(64 * kKiB, {s1, s2, s3});
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  word.wait_on(s1);
  MUST(cuEventRecord(event, s1));
  MUST(cuStreamWaitEvent(s3, event, 0));
  d.use(d.alloc(64 * kKiB), 64 * kKiB, 31, s3);
  d.use(d.alloc(64 * kKiB), 64 * kKiB, 32, s2);
  word.write_on(s2);
  return d.finish();
}

// A blocking stream waits and a non-blocking one releases; the legacy stream is left alone.
int blocking_stream() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(CU_STREAM_DEFAULT), s2 = d.stream(CU_STREAM_DEFAULT);
  d.live_and_die(kMiB, {nullptr, s1, s2});
  word.wait_on(s1);
  d.use(d.alloc(kMiB), kMiB, 33, s2);
  word.write_on(s2);
  return d.finish();
}

// S1 waits; on S2 launches may overlap, on memory whose old work was on both.
int programmatic() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  for (int i = 0; i < 3; ++i) d.live_and_die(64 * kKiB, {s1, s2});
  word.wait_on(s1);
  const CUdeviceptr p = d.alloc(64 * kKiB);
  d.spin(1000, s2);
  d.fill_programmatic(p, 64 * kKiB, 34, s2);
  d.check(p, 64 * kKiB, 34, s2);
  word.write_on(s2);
  return d.finish();
}

// A launch that may overlap follows at once upon the old owner's work, on the same stream. Large enough that
// the block is given again at once.
int programmatic_next() {
  MUST(cuInit(0));
  const Device d;
  const CUstream s2 = d.stream();
  for (int i = 0; i < 6; ++i) {
    const CUdeviceptr old = d.alloc(4 * kMiB);
    d.spin(kLongNs / 100, s2);
    d.fill(old, 4 * kMiB, 38, s2);
    d.free(old);
    const CUdeviceptr p = d.alloc(4 * kMiB);
    d.fill_programmatic(p, 4 * kMiB, 39, s2);
    d.check(p, 4 * kMiB, 39, s2);
    if (i % 2 == 0) d.free(p);
  }
  return d.finish();
}

// Allocation inside a capture, and the capture itself, while a stream waits.
int capture(CUstreamCaptureMode mode) {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream(), s3 = d.stream();
  for (int i = 0; i < 3; ++i) d.live_and_die(64 * kKiB, {s1, s2});
  // What is handed out and not yet ordered when the capture begins.
  d.use(d.alloc(64 * kKiB), 64 * kKiB, 35, s1);
  word.wait_on(s1);
  const CUdeviceptr before = d.alloc(64 * kKiB);
  MUST(cuStreamBeginCapture(s3, mode));
  const CUdeviceptr p = mode == CU_STREAM_CAPTURE_MODE_RELAXED ? d.alloc(64 * kKiB) : before;
  d.use(p, 64 * kKiB, 36, s3);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  MUST(cuStreamEndCapture(s3, &graph));
  const CUdeviceptr q = d.alloc(64 * kKiB);
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphLaunch(exec, s2));
  d.use(q, 64 * kKiB, 37, s2);
  word.write_on(s2);
  MUST(cuCtxSynchronize());
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(graph));
  return d.finish();
}

}  // namespace

Cases program_cases() {
  return {{"host-function", [] { return host_function(false); }},
          {"host-function-reused", [] { return host_function(true); }},
          {"host-kernel", [] { return host_kernel(false); }},
          {"host-kernel-reused", [] { return host_kernel(true); }},
          {"host-polls", host_polls},
          {"older-than-memory", older_than_memory},
          {"both-ways", both_ways},
          {"batch", batch},
          {"events", events},
          {"blocking-stream", blocking_stream},
          {"programmatic", programmatic},
          {"programmatic-next", programmatic_next},
          {"capture-relaxed", [] { return capture(CU_STREAM_CAPTURE_MODE_RELAXED); }},
          {"capture-global", [] { return capture(CU_STREAM_CAPTURE_MODE_GLOBAL); }}};
}

}  // namespace waits
