// Good and bad calls that give and take memory.
#include <cstring>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "questions.hpp"

namespace questions {

namespace {

void ask_alloc(const char* what, size_t bytes) {
  CUdeviceptr p = 0x1234;
  const CUresult code = cuMemAlloc(&p, bytes);
  say(std::string("cuMemAlloc of ") + what, code, p == 0x1234 ? "untouched" : "written");
  if (code == CUDA_SUCCESS) cuMemFree(p);
}

void bad_sizes() {
  set_place("bad: ");
  say("cuMemAlloc to null", cuMemAlloc(nullptr, 512));
  say("cuMemAlloc of nothing to null", cuMemAlloc(nullptr, 0));
  ask_alloc("0", 0);
  ask_alloc("2^50", size_t{1} << 50);
  ask_alloc("2^48", size_t{1} << 48);
  ask_alloc("2^63", size_t{1} << 63);
  ask_alloc("SIZE_MAX", SIZE_MAX);
  ask_alloc("SIZE_MAX - 511", SIZE_MAX - 511);
  size_t total = 0;
  MUST(cuMemGetInfo(nullptr, &total));
  ask_alloc("all there is", total);
  ask_alloc("more than there is", total + 1);
  say("cuMemFree of null", cuMemFree(0));
  say("cuMemFree of 1", cuMemFree(1));
  say("cuMemFree of a wild pointer", cuMemFree(0x7f0000000200));
  say("cuMemFree of a very wild pointer", cuMemFree(~CUdeviceptr{0}));
  int on_stack = 0;
  say("cuMemFree of the stack", cuMemFree(reinterpret_cast<CUdeviceptr>(&on_stack)));
}

void pitched() {
  set_place("pitch: ");
  const size_t widths[] = {0, 1, 4, 511, 512, 513, 1000, 4096, 65537, size_t{1} << 41};
  const size_t heights[] = {0, 1, 3, 1000, size_t{1} << 21};
  for (const size_t width : widths) {
    for (const size_t height : heights) {
      for (const unsigned element : {0u, 1u, 3u, 4u, 8u, 16u, 32u}) {
        if (element != 4 && (width != 513 || height != 3)) continue;
        CUdeviceptr p = 0;
        size_t pitch = 7;
        const CUresult code = cuMemAllocPitch(&p, &pitch, width, height, element);
        const std::string how =
            std::to_string(width) + " x " + std::to_string(height) + " of " + std::to_string(element);
        say("cuMemAllocPitch " + how, code, std::to_string(pitch));
        if (code != CUDA_SUCCESS) continue;
        ask_range(how.c_str(), p + pitch * (height - 1), p);
        say("cuMemFree " + how, cuMemFree(p));
        say("cuMemFree again " + how, cuMemFree(p));
      }
    }
  }
  CUdeviceptr p = 0;
  size_t pitch = 0;
  say("cuMemAllocPitch to null", cuMemAllocPitch(nullptr, &pitch, 100, 10, 4));
  say("cuMemAllocPitch without a pitch", cuMemAllocPitch(&p, nullptr, 100, 10, 4));
}

bool near(size_t a, size_t b, size_t most) { return (a > b ? a - b : b - a) <= most; }

void memory_info() {
  set_place("info: ");
  size_t before = 0, total = 0, now = 0, again = 0;
  say("cuMemGetInfo of nothing", cuMemGetInfo(nullptr, nullptr));
  say("cuMemGetInfo free alone", cuMemGetInfo(&before, nullptr));
  say("cuMemGetInfo total alone", cuMemGetInfo(nullptr, &total));
  const size_t all = total / 4 < 4096 * kMiB ? total / 4 : 4096 * kMiB;
  const size_t piece = all / 16;
  std::vector<CUdeviceptr> pieces(16);
  for (CUdeviceptr& p : pieces) MUST(cuMemAlloc(&p, piece));
  say("cuMemGetInfo with memory held", cuMemGetInfo(&now, &again),
      near(before - now, all, 64 * kMiB) ? "as much less" : "not as much less");
  say("cuMemGetInfo total", CUDA_SUCCESS, total == again ? "same" : "changed");
  for (const CUdeviceptr p : pieces) MUST(cuMemFree(p));
  say("cuMemGetInfo after that", cuMemGetInfo(&now, &again),
      near(before, now, 64 * kMiB) ? "as before" : "not as before");
  CUdeviceptr most = 0;
  say("cuMemAlloc of 98 % of what is free", cuMemAlloc(&most, now / 100 * 98));
  say("cuMemFree of it", cuMemFree(most));
  MUST(cuMemGetInfo(&now, &again));
  say("cuMemGetInfo after that too", CUDA_SUCCESS,
      near(before, now, 64 * kMiB) ? "as before" : "not as before");
}

void stream_ordered() {
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (unsigned round = 1; round <= kRounds; ++round) {
    for (const size_t bytes : kFewSizes) {
      set_place("stream-ordered, size " + std::to_string(bytes) + ", round " + std::to_string(round) + ": ");
      CUdeviceptr p = 0;
      MUST(cuMemAlloc(&p, bytes));
      say("cuMemFreeAsync inside", cuMemFreeAsync(p + bytes / 2, stream));
      say("cuMemFreeAsync", cuMemFreeAsync(p, stream));
      MUST(cuStreamSynchronize(stream));
      say("cuMemFreeAsync again", cuMemFreeAsync(p, stream));
      say("cuMemFree after it", cuMemFree(p));
      ask_range("after it", p, p);
      MUST(cuMemAlloc(&p, bytes));
      say("cuMemFreeAsync on the legacy stream", cuMemFreeAsync(p, nullptr));
      MUST(cuStreamSynchronize(nullptr));
      say("cuMemFree after it", cuMemFree(p));
      CUdeviceptr q = 0;
      say("cuMemAllocAsync", cuMemAllocAsync(&q, bytes, stream));
      MUST(cuStreamSynchronize(stream));
      ask_range("of cuMemAllocAsync", q, q);
      ask_attributes("of cuMemAllocAsync", q, q);
      say("cuMemFree of cuMemAllocAsync's", cuMemFree(q));
      say("cuMemFree of it again", cuMemFree(q));
    }
  }
  set_place("stream-ordered: ");
  say("cuMemFreeAsync of null", cuMemFreeAsync(0, stream));
  say("cuMemFreeAsync of a wild pointer", cuMemFreeAsync(0x7f0000000200, stream));
  MUST(cuStreamDestroy(stream));
}

// Memory is there until the stream comes to the free.
void leaving() {
  CUstream stream = nullptr, other = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  for (const size_t bytes : kFewSizes) {
    set_place("a stream has yet to free it, size " + std::to_string(bytes) + ": ");
    CUdeviceptr p = 0, q = 0;
    MUST(cuMemAlloc(&p, bytes));
    MUST(cuMemAlloc(&q, bytes));
    std::promise<void> is_open;
    std::future<void> opens = is_open.get_future();
    MUST(cuLaunchHostFunc(
        stream, [](void* gate) { static_cast<std::future<void>*>(gate)->wait(); }, &opens));
    say("cuMemFreeAsync", cuMemFreeAsync(p, stream));
    ask_range("at its start", p, p);
    ask_range("at its end", p + bytes - 1, p);
    unsigned type = 0;
    say("MEMORY_TYPE", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p),
        std::to_string(type));
    say("cuMemsetD8Async", cuMemsetD8Async(p, 1, bytes, other));
    say("cuMemsetD8Async of a byte more", cuMemsetD8Async(p, 1, bytes + 1, other));
    say("cuMemcpyAsync", cuMemcpyAsync(q, p, bytes, other));
    MUST(cuStreamSynchronize(other));
    is_open.set_value();
    MUST(cuStreamSynchronize(stream));
    ask_range("after it", p, p);
    say("cuMemsetD8Async after it", cuMemsetD8Async(p, 1, bytes, other));
    MUST(cuStreamSynchronize(other));
    MUST(cuMemFree(q));
  }
  for (const CUstream one : {stream, other}) MUST(cuStreamDestroy(one));
}

// Values must survive what is allocated and freed around them.
void values() {
  set_place("values: ");
  std::vector<unsigned char> host(33 * kMiB);
  for (unsigned round = 1; round <= kRounds; ++round) {
    std::vector<CUdeviceptr> blocks;
    for (const size_t bytes : kSizes) {
      CUdeviceptr p = 0;
      MUST(cuMemAlloc(&p, bytes));
      MUST(cuMemsetD8(p, static_cast<unsigned char>(blocks.size() + round), bytes));
      blocks.push_back(p);
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      host.assign(kSizes[i], 0);
      MUST(cuMemcpyDtoH(host.data(), blocks[i], kSizes[i]));
      size_t wrong = 0;
      for (size_t at = 0; at < kSizes[i]; ++at) wrong += host[at] != static_cast<unsigned char>(i + round);
      say("wrong bytes in size " + std::to_string(kSizes[i]), cuMemFree(blocks[i]), std::to_string(wrong));
    }
  }
}

// A capture that is begun twice goes on, whatever is allocated and submitted elsewhere meanwhile.
void captures() {
  set_place("capture: ");
  CUstream stream = nullptr, other = nullptr;
  CUdeviceptr p = 0, q = 0;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAlloc(&p, 4096));
  MUST(cuMemAlloc(&q, 4096));
  say("begin", cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  say("begin again", cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  say("work", cuMemsetD8Async(p, 1, 4096, stream));
  for (int i = 0; i < 3; ++i) {
    CUdeviceptr block = 0;
    say("allocate", cuMemAlloc(&block, 100000));
    say("work elsewhere", cuMemsetD8Async(q, 1, 4096, other));
    say("free", cuMemFree(block));
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  say("status", cuStreamIsCapturing(stream, &status), std::to_string(status));
  CUgraph graph = nullptr;
  say("end", cuStreamEndCapture(stream, &graph));
  if (graph != nullptr) say("destroy", cuGraphDestroy(graph));
  MUST(cuCtxSynchronize());
  for (const CUdeviceptr block : {p, q}) MUST(cuMemFree(block));
  for (const CUstream one : {stream, other}) MUST(cuStreamDestroy(one));
}

// Frees while a stream captures, in its thread or another: refused before the address is looked at, unless
// the thread is relaxed or the capture another thread's own.
void frees_in_captures() {
  CUcontext context = nullptr;
  CUstream stream = nullptr, other = nullptr;
  CUgraph graph = nullptr;
  MUST(cuCtxGetCurrent(&context));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  constexpr std::pair<const char*, CUstreamCaptureMode> kModes[] = {
      {"global", CU_STREAM_CAPTURE_MODE_GLOBAL},
      {"of a thread", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
      {"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED}};
  const std::pair<const char*, CUresult (*)(CUdeviceptr, CUstream, CUstream)> kFrees[] = {
      {"cuMemFreeAsync", [](CUdeviceptr p, CUstream, CUstream o) { return cuMemFreeAsync(p, o); }},
      {"cuMemFreeAsync inside", [](CUdeviceptr p, CUstream, CUstream o) { return cuMemFreeAsync(p + 8, o); }},
      {"cuMemFreeAsync of null", [](CUdeviceptr, CUstream, CUstream o) { return cuMemFreeAsync(0, o); }},
      {"cuMemFreeAsync there", [](CUdeviceptr p, CUstream s, CUstream) { return cuMemFreeAsync(p, s); }},
      {"cuMemFree", [](CUdeviceptr p, CUstream, CUstream) { return cuMemFree(p); }}};
  for (const auto& [name, mode] : kModes) {
    for (const char* where : {"its thread", "another thread", "a thread without a context"}) {
      set_place(std::string("capture, ") + name + ", in " + where + ": ");
      for (const auto& [what, free] : kFrees) {
        CUdeviceptr p = 0;
        CUresult answer = CUDA_SUCCESS;
        MUST(cuMemAlloc(&p, 100000));
        MUST(cuStreamBeginCapture(stream, mode));
        if (where[0] == 'i') {
          answer = free(p, stream, other);
        } else {
          std::thread([&, where = where, free = free] {
            if (where[2] == 'o') MUST(cuCtxSetCurrent(context));
            answer = free(p, stream, other);
          }).join();
        }
        say(what, answer);
        say("end", cuStreamEndCapture(stream, &graph));
        MUST(cuCtxSynchronize());
        say("cuMemFree after it", cuMemFree(p));
      }
    }
  }
  for (const CUstream one : {stream, other}) MUST(cuStreamDestroy(one));
}

}  // namespace

void about_calls() {
  bad_sizes();
  pitched();
  memory_info();
  stream_ordered();
  leaving();
  values();
  captures();
  frees_in_captures();
  set_place("");
}

}  // namespace questions
