// lend STORY [BACKEND]: what happens to shared memory when a process ends, frees, closes or asks. The
// exporter tells the importer, a second process, what to do step by step; both print what the driver
// answered. BACKEND is the importer's CUPOOL_BACKEND.
//   answers   all questions about an opened block, and every order of opening and closing
//   large     a block of many chunks, written and read on both sides
//   freed     the exporter frees what the importer has open, and uses new memory
//   racing    the exporter frees while the importer opens
//   dead      the exporter is killed
//   killed    the importer is killed, and another one comes
//   busy      the importer closes with a kernel under way
//   capturing the importer closes while a stream captures
//   ended     the importer's context ends with a block open
//   peers     the importer uses another device
//   files     the exporter counts its descriptors
#include <cuda.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "share.hpp"

namespace {

constexpr unsigned kLazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
const char kKernels[] =
#include "kernels.ptx.inc"
    ;

void say(const char* what, long long value) {
  std::printf("%s: %lld\n", what, value);
  std::fflush(stdout);
}

enum class Do {
  kOpen,
  kClose,
  kRead,
  kWrite,
  kAsk,
  kBusyClose,
  kCaptureClose,
  kDie,
  kOtherContext,
  kEnablePeer,
  kEndContext,
  kEnd
};

struct Order {
  Do what = Do::kEnd;
  share::Offer offer = {};
};

// ---- The importer: does as it is told.

class Importer {
 public:
  Importer(int from, int to) : from_(from), to_(to) {
    MUST(cuInit(0));
    int devices = 0;
    MUST(cuDeviceGetCount(&devices));
    for (int i = 0; i < 2; ++i) MUST(cuCtxCreate(&contexts_[i], nullptr, 0, i % devices));
    MUST(cuCtxSetCurrent(contexts_[0]));
  }
  void run() {
    for (Order order; share::receive(from_, &order) && order.what != Do::kEnd;) share::send(to_, act(order));
  }

 private:
  int act(const Order& order) {
    switch (order.what) {
      case Do::kOpen:
        return cuIpcOpenMemHandle(&block_, order.offer.handle, kLazy);
      case Do::kClose:
        return cuIpcCloseMemHandle(block_);
      case Do::kRead: {
        std::vector<unsigned char> host(order.offer.bytes);
        const CUresult result = cuMemcpyDtoH(host.data(), block_, host.size());
        if (result != CUDA_SUCCESS) return -result;
        return static_cast<int>(share::count_others(host.data(), host.size(), order.offer.value));
      }
      case Do::kWrite:
        return cuMemsetD8(block_, order.offer.value, order.offer.bytes);
      case Do::kAsk:
        ask(order.offer.bytes);
        return 0;
      case Do::kBusyClose:
        return busy_close(order.offer);
      case Do::kCaptureClose:
        capture_close(static_cast<CUstreamCaptureMode>(order.offer.value));
        return 0;
      case Do::kDie:
        kill(getpid(), SIGKILL);
        return 0;
      case Do::kOtherContext:
        std::swap(contexts_[0], contexts_[1]);
        return cuCtxSetCurrent(contexts_[0]);
      case Do::kEnablePeer: {
        // The other context's device may access this one's memory.
        MUST(cuCtxSetCurrent(contexts_[1]));
        const CUresult result = cuCtxEnablePeerAccess(contexts_[0], 0);
        MUST(cuCtxSetCurrent(contexts_[0]));
        return result;
      }
      case Do::kEndContext:
        return cuCtxDestroy(contexts_[0]);
      case Do::kEnd:
        break;
    }
    return 0;
  }

  int busy_close(const share::Offer& offer) {
    CUmodule module;
    CUfunction spin, fill;
    MUST(cuModuleLoadData(&module, kKernels));
    MUST(cuModuleGetFunction(&spin, module, "spin"));
    MUST(cuModuleGetFunction(&fill, module, "fill"));
    unsigned long long ns = 2'000'000;
    size_t bytes = offer.bytes;
    unsigned value = offer.value;
    void* spinning[] = {&ns};
    void* filling[] = {&block_, &bytes, &value};
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, spinning, nullptr));
    MUST(cuLaunchKernel(fill, 64, 1, 1, 256, 1, 1, 0, stream, filling, nullptr));
    return cuIpcCloseMemHandle(block_);
  }

  void capture_close(CUstreamCaptureMode mode) {
    CUstream stream;
    CUgraph graph = nullptr;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamBeginCapture(stream, mode));
    const CUresult closed = cuIpcCloseMemHandle(block_);
    say("close while capturing", closed);
    say("end of the capture", cuStreamEndCapture(stream, &graph));
    if (closed != CUDA_SUCCESS) say("close", cuIpcCloseMemHandle(block_));
    MUST(cuStreamDestroy(stream));
  }

  void ask(size_t bytes) {
    CUdeviceptr base = 0;
    size_t size = 0;
    for (const size_t at : {size_t{0}, bytes - 1}) {
      const CUresult result = cuMemGetAddressRange(&base, &size, block_ + at);
      say("address range", result);
      say("  base", static_cast<long long>(base - block_));
      say("  bytes", static_cast<long long>(size));
    }
    for (int which = CU_POINTER_ATTRIBUTE_CONTEXT; which <= CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID; ++which) {
      unsigned long long value = 0;
      const auto attribute = static_cast<CUpointer_attribute>(which);
      if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) continue;
      const CUresult result = cuPointerGetAttribute(&value, attribute, block_);
      std::printf("attribute %d: %d", which, static_cast<int>(result));
      // Numbers and places of this very process are not compared.
      switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: {
          CUcontext here = nullptr;
          MUST(cuCtxGetCurrent(&here));
          const bool is_here = value == reinterpret_cast<uintptr_t>(here);
          std::printf(" %s\n", is_here ? "this" : value == 0 ? "none" : "another");
          break;
        }
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
          std::printf(" %lld\n", static_cast<long long>(value - block_));
          break;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
          std::printf(" %s\n", value == 0 ? "none" : "some");
          break;
        default:
          std::printf(" %llu\n", value);
      }
    }
    std::vector<unsigned char> host(bytes + 1);
    say("copy past the end", cuMemcpyDtoH(host.data(), block_, bytes + 1));
    say("memset past the end", cuMemsetD8(block_ + bytes - 1, 0, 2));
    CUipcMemHandle handle;
    say("export again", cuIpcGetMemHandle(&handle, block_));
    say("free", cuMemFree(block_));
    CUmemGenericAllocationHandle chunk = 0;
    say("retain", cuMemRetainAllocationHandle(&chunk, reinterpret_cast<void*>(block_)));
    say("close inside", cuIpcCloseMemHandle(block_ + 512));
  }

  int from_, to_;
  CUcontext contexts_[2] = {};
  CUdeviceptr block_ = 0;
};

// ---- The exporter.

class Peer {
 public:
  explicit Peer(const char* backend = nullptr) {
    int down[2], up[2];
    if (pipe(down) != 0 || pipe(up) != 0) share::die("pipe", 1);
    child_ = fork();
    if (child_ == 0) {
      close(down[1]);
      close(up[0]);
      if (backend != nullptr) setenv("CUPOOL_BACKEND", backend, 1);
      execl("/proc/self/exe", "lend", "import", std::to_string(down[0]).c_str(),
            std::to_string(up[1]).c_str(), nullptr);
      _exit(3);
    }
    close(down[0]);
    close(up[1]);
    to_ = down[1];
    from_ = up[0];
  }
  // What it answers; -1: it is no more.
  int tell(Do what, const share::Offer& offer = {}) const {
    start(what, offer);
    return answer();
  }
  // The same in two steps, with something else between them.
  void start(Do what, const share::Offer& offer) const { share::send(to_, Order{what, offer}); }
  int answer() const {
    int result = -1;
    return share::receive(from_, &result) ? result : -1;
  }
  int end() const {
    share::send(to_, Order{});
    int status = 0;
    waitpid(child_, &status, 0);
    return status;
  }

 private:
  pid_t child_ = 0;
  int to_ = 0, from_ = 0;
};

struct Lent {
  CUdeviceptr block = 0;
  share::Offer offer = {};
};

Lent lend(size_t bytes, unsigned char value) {
  Lent made;
  made.offer.bytes = bytes;
  made.offer.value = value;
  MUST(cuMemAlloc(&made.block, bytes));
  MUST(cuMemsetD8(made.block, value, bytes));
  MUST(cuIpcGetMemHandle(&made.offer.handle, made.block));
  MUST(cuCtxSynchronize());
  return made;
}

long long wrong_bytes(const Lent& lent, unsigned char value) {
  std::vector<unsigned char> host(lent.offer.bytes);
  MUST(cuMemcpyDtoH(host.data(), lent.block, host.size()));
  return share::count_others(host.data(), host.size(), value);
}

void answers(const Peer& peer) {
  for (const size_t bytes : {size_t{5000}, size_t{3} << 20}) {
    const Lent lent = lend(bytes, 7);
    CUdeviceptr own = 0;
    say("open our own", cuIpcOpenMemHandle(&own, lent.offer.handle, kLazy));
    say("open", peer.tell(Do::kOpen, lent.offer));
    say("wrong", peer.tell(Do::kRead, lent.offer));
    say("ask", peer.tell(Do::kAsk, lent.offer));
    say("open again", peer.tell(Do::kOpen, lent.offer));
    say("other context", peer.tell(Do::kOtherContext));
    say("open there", peer.tell(Do::kOpen, lent.offer));
    say("back", peer.tell(Do::kOtherContext));
    say("close", peer.tell(Do::kClose));
    say("wrong", peer.tell(Do::kRead, lent.offer));
    say("close the last", peer.tell(Do::kClose));
    say("close once more", peer.tell(Do::kClose));
    say("read closed", peer.tell(Do::kRead, lent.offer));
    say("other context", peer.tell(Do::kOtherContext));
    say("open there", peer.tell(Do::kOpen, lent.offer));
    say("wrong", peer.tell(Do::kRead, lent.offer));
    say("close", peer.tell(Do::kClose));
    MUST(cuMemFree(lent.block));
  }
}

void large(const Peer& peer) {
  Lent lent = lend(size_t{160} << 20, 3);
  say("open", peer.tell(Do::kOpen, lent.offer));
  say("wrong", peer.tell(Do::kRead, lent.offer));
  lent.offer.value = 9;
  say("write", peer.tell(Do::kWrite, lent.offer));
  say("read", peer.tell(Do::kRead, lent.offer));
  say("wrong", wrong_bytes(lent, 9));
  say("close", peer.tell(Do::kClose));
}

void freed(const Peer& peer) {
  for (const size_t bytes : {size_t{5000}, size_t{48} << 20}) {
    const Lent lent = lend(bytes, 5);
    say("open", peer.tell(Do::kOpen, lent.offer));
    MUST(cuMemFree(lent.block));
    std::vector<CUdeviceptr> next(6);
    for (CUdeviceptr& one : next) {
      MUST(cuMemAlloc(&one, bytes));
      MUST(cuMemsetD8(one, 6, bytes));
      // Exported too: what may not be opened is the old life of a place.
      CUipcMemHandle other;
      MUST(cuIpcGetMemHandle(&other, one));
    }
    MUST(cuCtxSynchronize());
    say("wrong", peer.tell(Do::kRead, lent.offer));
    say("close", peer.tell(Do::kClose));
    say("open", peer.tell(Do::kOpen, lent.offer));
    for (const CUdeviceptr one : next) MUST(cuMemFree(one));
  }
}

// Whatever the importer gets is the block that it was offered.
void racing(const Peer& peer) {
  constexpr int kTimes = 300;
  long long wrong = 0;
  for (int i = 0; i < kTimes; ++i) {
    const Lent lent = lend(4 << 20, static_cast<unsigned char>(i % 250 + 1));
    peer.start(Do::kOpen, lent.offer);
    for (int turn = i % 50; turn > 0; --turn) sched_yield();
    MUST(cuMemFree(lent.block));
    CUdeviceptr next = 0;
    MUST(cuMemAlloc(&next, 4 << 20));
    MUST(cuMemsetD8(next, 0xFF, 4 << 20));
    const int answer = peer.answer();
    wrong += answer != CUDA_SUCCESS && answer != CUDA_ERROR_INVALID_HANDLE;
    if (answer == CUDA_SUCCESS) {
      wrong += peer.tell(Do::kRead, lent.offer);
      if (peer.tell(Do::kClose) != CUDA_SUCCESS) share::die("close", 1);
    }
    MUST(cuMemFree(next));
  }
  say("wrong", wrong);
}

// Its own exporter is a process between, so that the test survives it.
void dead() {
  int ends[2];
  if (pipe(ends) != 0) share::die("pipe", 1);
  const Peer peer;
  const pid_t exporter = fork();
  if (exporter == 0) {
    share::begin_device();
    share::send(ends[1], lend(4 << 20, 1).offer);
    share::send(ends[1], lend(4 << 20, 2).offer);
    pause();
  }
  share::Offer one = {}, two = {};
  if (!share::receive(ends[0], &one) || !share::receive(ends[0], &two)) share::die("the exporter", 1);
  say("open", peer.tell(Do::kOpen, one));
  kill(exporter, SIGKILL);
  waitpid(exporter, nullptr, 0);
  say("wrong", peer.tell(Do::kRead, one));
  say("close", peer.tell(Do::kClose));
  say("open the other", peer.tell(Do::kOpen, two));
  say("importer", peer.end());
}

void killed(const Peer& first, const Peer& second) {
  const Lent lent = lend(4 << 20, 8);
  say("open", first.tell(Do::kOpen, lent.offer));
  say("die", first.tell(Do::kDie));
  say("open", second.tell(Do::kOpen, lent.offer));
  say("wrong", second.tell(Do::kRead, lent.offer));
  say("wrong", wrong_bytes(lent, 8));
  MUST(cuMemFree(lent.block));
  say("close", second.tell(Do::kClose));
}

void busy(const Peer& peer) {
  Lent lent = lend(4 << 20, 1);
  say("open", peer.tell(Do::kOpen, lent.offer));
  lent.offer.value = 2;
  say("close", peer.tell(Do::kBusyClose, lent.offer));
  say("wrong", wrong_bytes(lent, 2));
}

void capturing(const Peer& peer) {
  Lent lent = lend(4 << 20, 1);
  for (const auto mode :
       {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL}) {
    say("open", peer.tell(Do::kOpen, lent.offer));
    lent.offer.value = static_cast<unsigned char>(mode);
    say("closed", peer.tell(Do::kCaptureClose, lent.offer));
  }
}

void ended(const Peer& peer) {
  const Lent lent = lend(4 << 20, 4);
  say("open", peer.tell(Do::kOpen, lent.offer));
  say("end", peer.tell(Do::kEndContext));
  say("other context", peer.tell(Do::kOtherContext));
  say("read", peer.tell(Do::kRead, lent.offer));
  say("open", peer.tell(Do::kOpen, lent.offer));
  say("wrong", peer.tell(Do::kRead, lent.offer));
  say("close", peer.tell(Do::kClose));
}

void peers(const Peer& peer) {
  Lent lent = lend(4 << 20, 4);
  say("other device", peer.tell(Do::kOtherContext));
  say("open", peer.tell(Do::kOpen, lent.offer));
  say("wrong", peer.tell(Do::kRead, lent.offer));
  lent.offer.value = 5;
  say("write", peer.tell(Do::kWrite, lent.offer));
  say("read", peer.tell(Do::kRead, lent.offer));
  say("wrong", wrong_bytes(lent, 5));
  say("close", peer.tell(Do::kClose));
  say("back", peer.tell(Do::kOtherContext));
  // Access that is given while a block is open, and before one is opened.
  for (unsigned char value = 6; value < 8; ++value) {
    say("open", peer.tell(Do::kOpen, lent.offer));
    if (value == 6) say("enable", peer.tell(Do::kEnablePeer));
    lent.offer.value = value;
    say("other device", peer.tell(Do::kOtherContext));
    say("write", peer.tell(Do::kWrite, lent.offer));
    say("read", peer.tell(Do::kRead, lent.offer));
    say("back", peer.tell(Do::kOtherContext));
    say("wrong", wrong_bytes(lent, value));
    say("close", peer.tell(Do::kClose));
  }
}

// Descriptors at the numbers that a program may count on, or that a new program would get.
int disturbing_files() {
  int count = 0;
  for (int i = 0; i < 1024; ++i) {
    const int flags = fcntl(i, F_GETFD);
    count += flags >= 0 && (i < 400 || (flags & FD_CLOEXEC) == 0);
  }
  return count;
}

void files(const Peer& peer) {
  const int before = disturbing_files();
  for (int i = 0; i < 20; ++i) {
    const Lent lent = lend(4 << 20, 1);
    if (peer.tell(Do::kOpen, lent.offer) != 0) share::die("open", 1);
    if (peer.tell(Do::kClose) != 0) share::die("close", 1);
    MUST(cuMemFree(lent.block));
  }
  // A thread of cupool's that opens a file has a low number for an instant; one that stays is a defect.
  int more = 0;
  for (int looks = 0; looks < 1000 && (more = disturbing_files() - before) > 0; ++looks) usleep(1000);
  say("more descriptors", std::max(more, 0));
}

}  // namespace

int main(int count, char** words) {
  if (count == 4 && std::strcmp(words[1], "import") == 0) {
    Importer(std::atoi(words[2]), std::atoi(words[3])).run();
    return 0;
  }
  const std::string story = count > 1 ? words[1] : "";
  if (story == "dead") {
    dead();
    return 0;
  }
  // Before the first use of CUDA, which does not survive a fork.
  const Peer peer(count > 2 ? words[2] : nullptr);
  const Peer second;
  share::begin_device();
  if (story == "answers") answers(peer);
  if (story == "large") large(peer);
  if (story == "freed") freed(peer);
  if (story == "racing") racing(peer);
  if (story == "killed") killed(peer, second);
  if (story == "busy") busy(peer);
  if (story == "capturing") capturing(peer);
  if (story == "ended") ended(peer);
  if (story == "peers") peers(peer);
  if (story == "files") files(peer);
  if (story != "killed") say("importer", peer.end());
  say("second", second.end());
  return 0;
}
