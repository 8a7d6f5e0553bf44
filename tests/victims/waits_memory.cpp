// Cases of `waits`: a stream or a kernel waits, and meanwhile the program asks for memory, gives none back,
// and asks for nothing that the driver would wait in.
#include <cstring>
#include <mutex>

#include "waits.hpp"

namespace waits {
namespace {

constexpr size_t kSizes[] = {512, 64 * kKiB, kMiB, 8 * kMiB, 64 * kMiB};

std::string named(const char* what, size_t bytes) {
  return what + (bytes < kMiB ? std::to_string(bytes) : std::to_string(bytes / kMiB) + "M");
}

// S1 waits for S2; S2's work needs memory that nobody had before.
int new_memory(size_t bytes) {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  d.spin(1000, s1);
  word.wait_on(s1);
  const CUdeviceptr p = d.alloc(bytes);
  d.use(p, bytes, 1, s2);
  word.write_on(s2);
  return d.finish();
}

// The same; the memory had an owner before S1's wait, who worked on these streams.
int reused(size_t bytes, bool on_waiting, bool on_releasing) {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  std::vector<CUstream> old;
  if (on_waiting) old.push_back(s1);
  if (on_releasing) old.push_back(s2);
  for (int i = 0; i < 3; ++i) d.live_and_die(bytes, old);
  word.wait_on(s1);
  const CUdeviceptr p = d.alloc(bytes);
  d.use(p, bytes, 2, s2);
  const CUdeviceptr q = d.alloc(bytes);
  d.use(q, bytes, 3, s2);
  word.write_on(s2);
  d.use(p, bytes, 4, s2);
  return d.finish();
}

// Memory of all sizes at once, many blocks freed and many asked for.
int reused_many() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 40; ++i) {
    blocks.push_back(d.alloc(kSizes[i % 4]));
    d.use(blocks.back(), kSizes[i % 4], 5, i % 3 == 0 ? s2 : s1);
  }
  for (const CUdeviceptr p : blocks) d.free(p);
  word.wait_on(s1);
  for (int i = 0; i < 40; ++i) d.use(d.alloc(kSizes[i % 4]), kSizes[i % 4], 6, s2);
  word.write_on(s2);
  return d.finish();
}

// A turn after a turn: each frees when nothing waits, and each has its own word.
int turns() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  for (unsigned turn = 1; turn <= 12; ++turn) {
    const CUstream waiting = turn % 2 == 0 ? s1 : s2, releasing = turn % 2 == 0 ? s2 : s1;
    word.wait_on(waiting, turn);
    const CUdeviceptr p = d.alloc(kMiB);
    d.use(p, kMiB, turn, releasing);
    word.write_on(releasing, turn);
    d.use(p, kMiB, turn + 100, releasing);
    d.free(p);
  }
  return d.finish();
}

std::vector<CUdeviceptr> take(const Device& d, unsigned count, size_t bytes, CUstream stream) {
  std::vector<CUdeviceptr> blocks;
  for (unsigned i = 0; i < count; ++i) {
    blocks.push_back(d.alloc(bytes));
    d.use(blocks.back(), kMiB, 7, stream);
  }
  return blocks;
}

// A kernel waits for the host, which asks for much memory before it answers. `taken`: so many sixteenths of
// the device were in use and are free again; `wanted`: so many are asked for.
int large(unsigned taken, unsigned wanted) {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  const size_t part = sixteenth();
  const std::vector<CUdeviceptr> blocks = take(d, taken, part, s1);
  for (const CUdeviceptr p : blocks) d.free(p);
  d.await(word.address(), 1, s1);
  const CUdeviceptr p = d.alloc(part * wanted);
  d.use(p, kMiB, 8, s2);
  MUST(cuStreamSynchronize(s2));
  word.set(1);
  return d.finish();
}

// A kernel waits for the host, which asks for more than the device has before it answers: the driver refuses
// at once. `taken`: so many sixteenths of the device are in use, `given`: so many of them are free again;
// `wanted`: so many are asked for, one by one until there are no more (0), or all at once.
int refused(unsigned taken, unsigned given, unsigned wanted) {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream();
  const size_t part = sixteenth();
  const std::vector<CUdeviceptr> blocks = take(d, taken, part, s1);
  for (unsigned i = 0; i < given; ++i) d.free(blocks[2 * i]);
  d.await(word.address(), 1, s1);
  CUdeviceptr p = 0;
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < (wanted == 0 ? 17 : 1) && result == CUDA_SUCCESS; ++i)
    result = cuMemAlloc(&p, part * (wanted == 0 ? 1 : wanted));
  word.set(1);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? d.finish() : 1;
}

// The same with much of the memory free, but in pieces between live blocks: of half a gigabyte, because a
// whole device of them takes the driver minutes.
int refused_in_pieces(size_t bytes) {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream();
  d.alloc(16 * sixteenth() - 512 * kMiB);
  const size_t part = sixteenth();
  std::vector<CUdeviceptr> blocks;
  CUdeviceptr p = 0;
  while (blocks.size() < 14 * part / bytes && cuMemAlloc(&p, bytes) == CUDA_SUCCESS) blocks.push_back(p);
  d.use(blocks[0], bytes, 16, s1);
  d.spin(kLongNs, s1);
  for (size_t i = 0; i < blocks.size(); i += 2) d.free(blocks[i]);
  d.await(word.address(), 1, s1);
  // (The driver's own pool has larger pieces.)
  const CUresult result = cuMemAlloc(&p, 4 * part);
  word.set(1);
  return result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_SUCCESS ? d.finish() : 1;
}

// The same with memory that no pool serves.
int refused_create() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream();
  const size_t part = sixteenth();
  for (const CUdeviceptr p : take(d, 4, part, s1)) d.free(p);
  d.await(word.address(), 1, s1);
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle memory = 0;
  const CUresult result = cuMemCreate(&memory, part * 20, &properties, 0);
  word.set(1);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? d.finish() : 1;
}

// Blocks of so many bytes or more fill the device. The last one is freed, a kernel waits for the host, and
// the host asks for as much again before it answers.
int full(size_t fewest) {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  CUdeviceptr p = 0, last = 0;
  size_t bytes = 0;
  for (size_t part = sixteenth(); part >= fewest; part /= 2) {
    for (; cuMemAlloc(&p, part) == CUDA_SUCCESS; bytes = part) last = p;
  }
  d.use(last, bytes, 14, s1);
  d.free(last);
  d.await(word.address(), 1, s1);
  p = d.alloc(bytes);
  d.use(p, bytes, 15, s2);
  MUST(cuStreamSynchronize(s2));
  word.set(1);
  return d.finish();
}

// The device is full when memory goes back for the first time: a kernel waits for the host, which asks for
// half of the device in one piece before it answers.
int full_then_large() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  const size_t most = sixteenth();
  std::vector<CUdeviceptr> blocks;
  CUdeviceptr p = 0;
  for (size_t part = most; part >= 2 * kMiB; part /= 2) {
    while (cuMemAlloc(&p, part) == CUDA_SUCCESS) blocks.push_back(p);
  }
  d.use(blocks[0], kMiB, 17, s1);
  for (const CUdeviceptr one : blocks) d.free(one);
  d.await(word.address(), 1, s1);
  p = d.alloc(8 * most);
  d.use(p, kMiB, 18, s2);
  MUST(cuStreamSynchronize(s2));
  word.set(1);
  return d.finish();
}

// A busy stream goes away; what it waits for comes from another. `old`: memory that it worked on was freed
// before and given out again.
int destroyed(bool old) {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  CUstream s1 = d.stream();
  const CUstream s2 = d.stream();
  if (old) d.live_and_die(kMiB, {s1});
  if (old) d.use(d.alloc(kMiB), kMiB, 9, s1);
  word.wait_on(s1);
  MUST(cuStreamDestroy(s1));
  // A new one may get its handle; it does not wait.
  s1 = d.stream();
  const CUdeviceptr p = d.alloc(kMiB);
  d.use(p, kMiB, 10, s1);
  MUST(cuStreamSynchronize(s1));
  word.write_on(s2);
  return d.finish();
}

int get_info() {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  for (int i = 0; i < 4; ++i) d.live_and_die(8 * kMiB, {s1, s2});
  word.wait_on(s1);
  size_t room = 0, total = 0;
  MUST(cuMemGetInfo(&room, &total));
  d.use(d.alloc(kMiB), kMiB, 11, s2);
  MUST(cuMemGetInfo(&room, &total));
  word.write_on(s2);
  return room == 0 || room > total ? 1 : d.finish();
}

// The host writes managed memory as soon as it has it.
int managed(size_t bytes, bool old) {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  CUdeviceptr p = 0;
  for (int i = 0; old && i < 2; ++i) {
    MUST(cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
    d.spin(kLongNs / 100, s1);
    d.use(p, bytes, 12, s1);
    d.free(p);
  }
  word.wait_on(s1);
  MUST(cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
  std::memset(reinterpret_cast<void*>(p), 13, bytes);
  d.check(p, bytes, 13, s2);
  word.write_on(s2);
  return d.finish();
}

// Memory that was freed is asked for while a stream captures.
int capture_room() {
  MUST(cuInit(0));
  const Device d;
  const CUstream s1 = d.stream(), s2 = d.stream();
  const size_t part = sixteenth();
  const std::vector<CUdeviceptr> blocks = take(d, 12, part, s1);
  for (const CUdeviceptr p : blocks) d.free(p);
  MUST(cuStreamBeginCapture(s2, CU_STREAM_CAPTURE_MODE_RELAXED));
  const CUdeviceptr p = d.alloc(part * 10);
  d.use(p, kMiB, 30, s2);
  CUgraph graph = nullptr;
  MUST(cuStreamEndCapture(s2, &graph));
  CUgraphExec exec = nullptr;
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphLaunch(exec, s2));
  return d.finish();
}

// A host function takes a lock. The program takes it as well, after a free that waits for the function, and
// asks for more memory than was freed.
int growth_under_lock() {
  MUST(cuInit(0));
  const Device d;
  static std::mutex lock;
  const CUstream s1 = d.stream();
  const CUdeviceptr p = d.alloc(64 * kMiB);
  d.use(p, kMiB, 31, s1);
  d.spin(kLongNs, s1);
  MUST(cuLaunchHostFunc(
      s1, [](void*) { const std::lock_guard<std::mutex> hold(lock); }, nullptr));
  d.free(p);
  {
    const std::lock_guard<std::mutex> hold(lock);
    d.alloc(200 * kMiB);
  }
  return d.finish();
}

}  // namespace

Cases memory_cases() {
  Cases cases;
  for (const size_t bytes : kSizes) {
    cases.push_back({named("new-", bytes), [=] { return new_memory(bytes); }});
    cases.push_back({named("reused-waiting-", bytes), [=] { return reused(bytes, true, false); }});
    cases.push_back({named("reused-releasing-", bytes), [=] { return reused(bytes, false, true); }});
    cases.push_back({named("reused-both-", bytes), [=] { return reused(bytes, true, true); }});
  }
  cases.push_back({"reused-many", reused_many});
  cases.push_back({"turns", turns});
  cases.push_back({"large-room", [] { return large(4, 10); }});
  cases.push_back({"large-full", [] { return large(12, 8); }});
  cases.push_back({"refused", [] { return refused(4, 0, 0); }});
  cases.push_back({"refused-reused", [] { return refused(12, 4, 0); }});
  cases.push_back({"refused-large", [] { return refused(12, 4, 10); }});
  cases.push_back({"refused-larger", [] { return refused(12, 4, 40); }});
  cases.push_back({"refused-in-pieces", [] { return refused_in_pieces(kMiB); }});
  cases.push_back({"refused-in-small-pieces", [] { return refused_in_pieces(100 * kKiB); }});
  cases.push_back({"refused-create", refused_create});
  cases.push_back({"full-512", [] { return full(512); }});
  cases.push_back({"full-100K", [] { return full(100 * kKiB); }});
  cases.push_back({"full-2M", [] { return full(2 * kMiB); }});
  cases.push_back({"full-then-large", full_then_large});
  cases.push_back({"capture-room", capture_room});
  cases.push_back({"growth-under-lock", growth_under_lock});
  cases.push_back({"destroy", [] { return destroyed(false); }});
  cases.push_back({"destroy-reused", [] { return destroyed(true); }});
  cases.push_back({"mem-get-info", get_info});
  cases.push_back({"managed-new", [] { return managed(kMiB, false); }});
  cases.push_back({"managed-reused", [] { return managed(kMiB, true); }});
  cases.push_back({"managed-reused-small", [] { return managed(4 * kKiB, true); }});
  return cases;
}

}  // namespace waits
