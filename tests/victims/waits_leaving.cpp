// Cases of `waits`: memory that leaves the order of the device, to another process, to the host or to a
// network card. It was freed with a long kernel queued and allocated again; when the call that lets it out
// returns, its old life must be over, as it was when the driver's own free returned.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "pipes.hpp"
#include "waits.hpp"

namespace waits {
namespace {

using pipes::receive;
using pipes::send;

constexpr size_t kBytes = 4 * kMiB;

struct Offer {
  CUipcMemHandle handle;
  size_t bytes;
  unsigned char found, written;
};

struct Importer {
  pid_t process = 0;
  int to = 0, from = 0;
};

// Before the first use of CUDA, which does not survive a fork. A program of its own, preloaded as this one
// is.
Importer start_importer() {
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) die("pipe", 1);
  Importer made;
  made.process = fork();
  if (made.process == 0) {
    unsetenv("CUPOOL_SIM_REPORT");
    close(down[1]);
    close(up[0]);
    execl("/proc/self/exe", "waits", "import", std::to_string(down[0]).c_str(), std::to_string(up[1]).c_str(),
          nullptr);
    _exit(3);
  }
  close(down[0]);
  close(up[1]);
  made.to = down[1];
  made.from = up[0];
  return made;
}

unsigned count_others(const std::vector<unsigned char>& bytes, unsigned char value) {
  return static_cast<unsigned>(bytes.size()) -
         static_cast<unsigned>(std::count(bytes.begin(), bytes.end(), value));
}

using Allocate = CUdeviceptr (*)(size_t bytes);

CUdeviceptr plain(size_t bytes) {
  CUdeviceptr p = 0;
  MUST(cuMemAlloc(&p, bytes));
  return p;
}

CUdeviceptr managed(size_t bytes) {
  CUdeviceptr p = 0;
  MUST(cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
  return p;
}

// Memory that was freed with a long kernel queued that writes it, and allocated again at the same size.
struct SecondLife {
  SecondLife(const Device& d, size_t size, CUstream stream, Allocate allocate = plain) : bytes(size) {
    old = allocate(bytes);
    d.use(old, bytes, 60, stream);
    d.spin(kLongNs, stream);
    d.fill(old, bytes, 61, stream);
    done.write_on(stream);
    d.free(old);
  }

  void begin(Allocate allocate = plain) { p = allocate(bytes); }
  // Whether nothing of the old life can touch the memory any more: asked when it has just been let out.
  bool is_alone() const { return done.get() == 1 || p + bytes <= old || old + bytes <= p; }

  Word done;  // set when the old work is over
  size_t bytes = 0;
  CUdeviceptr old = 0, p = 0;
};

int verdict(const Device& d, bool alone) {
  if (!alone) std::printf("waits: the old life of the memory goes on\n");
  return d.finish() != 0 || !alone ? 1 : 0;
}

// What the other process found wrong, after it had the memory and is gone.
unsigned lend(const Importer& importer, const Offer& offer) {
  send(importer.to, offer);
  unsigned wrong = 1;
  if (!receive(importer.from, &wrong)) die("the importer gave up", 1);
  int status = 1;
  waitpid(importer.process, &status, 0);
  if (wrong != 0) std::printf("waits: the other process found %u wrong bytes\n", wrong);
  return wrong != 0 || status != 0 ? 1 : 0;
}

// The other process reads what this one wrote, and writes in turn; the old kernel must not come after it.
int ipc(size_t bytes) {
  const Importer importer = start_importer();
  MUST(cuInit(0));
  const Device d;
  const CUstream s1 = d.stream();
  SecondLife life(d, bytes, s1);
  life.begin();
  Offer offer = {};
  MUST(cuIpcGetMemHandle(&offer.handle, life.p));
  const bool alone = life.is_alone();
  d.fill(life.p, bytes, 62, s1);
  MUST(cuStreamSynchronize(s1));
  offer.bytes = bytes;
  offer.found = 62;
  offer.written = 63;
  const unsigned wrong = lend(importer, offer);
  d.check(life.p, bytes, 63, s1);
  return verdict(d, alone) != 0 || wrong != 0 ? 1 : 0;
}

// The other process writes first: nothing of this one touches the memory's new life.
int ipc_written() {
  const Importer importer = start_importer();
  MUST(cuInit(0));
  const Device d;
  const CUstream s1 = d.stream();
  SecondLife life(d, kBytes, s1);
  life.begin();
  Offer offer = {};
  MUST(cuIpcGetMemHandle(&offer.handle, life.p));
  offer.bytes = kBytes;
  offer.written = 64;
  const unsigned wrong = lend(importer, offer);
  MUST(cuCtxSynchronize());
  d.check(life.p, kBytes, 64, s1);
  return d.finish() != 0 || wrong != 0 ? 1 : 0;
}

// From here on synchronous copies may be made by others than this program's streams.
int sync_memops() {
  MUST(cuInit(0));
  const Device d;
  SecondLife life(d, kBytes, d.stream());
  life.begin();
  const unsigned on = 1;
  MUST(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, life.p));
  const bool alone = life.is_alone();
  const std::vector<unsigned char> host(kBytes, 65);
  MUST(cuMemcpyHtoD(life.p, host.data(), host.size()));
  d.check(life.p, kBytes, 65, d.stream());
  return verdict(d, alone);
}

int tokens() {
  MUST(cuInit(0));
  const Device d;
  SecondLife life(d, kBytes, d.stream());
  life.begin();
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS out = {};
  if (cuPointerGetAttribute(&out, CU_POINTER_ATTRIBUTE_P2P_TOKENS, life.p) != CUDA_SUCCESS)
    skip("no tokens on this device");
  return verdict(d, life.is_alone());
}

int dma_buf() {
  MUST(cuInit(0));
  const Device d;
  SecondLife life(d, kBytes, d.stream());
  life.begin();
  int file = -1;
  if (cuMemGetHandleForAddressRange(&file, life.p, kBytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) !=
      CUDA_SUCCESS) {
    skip("no dma-buf of this memory on this device");
  }
  const bool alone = life.is_alone();
  close(file);
  return verdict(d, alone);
}

// Managed memory is the host's at once.
int managed_touched() {
  MUST(cuInit(0));
  const Device d;
  SecondLife life(d, kMiB, d.stream(), managed);
  life.begin(managed);
  const bool alone = life.is_alone();
  std::memset(reinterpret_cast<void*>(life.p), 67, kMiB);
  d.check(life.p, kMiB, 67, d.stream());
  return verdict(d, alone);
}

// What leaves waits for its old life and for nothing newer: a stream that is released later may wait
// meanwhile.
int while_waiting(bool by_handle) {
  MUST(cuInit(0));
  const Device d;
  const Word word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  SecondLife life(d, kBytes, s2);
  word.wait_on(s1);
  life.begin();
  if (by_handle) {
    CUipcMemHandle handle;
    MUST(cuIpcGetMemHandle(&handle, life.p));
  } else {
    const unsigned on = 1;
    MUST(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, life.p));
  }
  const bool alone = life.is_alone();
  d.use(life.p, kBytes, 69, s2);
  word.write_on(s2);
  return verdict(d, alone);
}

}  // namespace

Cases leaving_cases() {
  return {{"ipc-4M", [] { return ipc(kBytes); }},
          {"ipc-4K", [] { return ipc(4 * kKiB); }},
          {"ipc-64M", [] { return ipc(64 * kMiB); }},
          {"ipc-written", ipc_written},
          {"sync-memops", sync_memops},
          {"p2p-tokens", tokens},
          {"dma-buf", dma_buf},
          {"managed-touched", managed_touched},
          {"ipc-while-waiting", [] { return while_waiting(true); }},
          {"sync-memops-while-waiting", [] { return while_waiting(false); }}};
}

int import(int in, int out) {
  MUST(cuInit(0));
  const Device d;
  Offer offer;
  if (!receive(in, &offer)) return 0;
  CUdeviceptr p = 0;
  MUST(cuIpcOpenMemHandle(&p, offer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  std::vector<unsigned char> host(offer.bytes);
  MUST(cuMemcpyDtoH(host.data(), p, host.size()));
  const unsigned wrong = offer.found != 0 ? count_others(host, offer.found) : 0;
  std::fill(host.begin(), host.end(), offer.written);
  MUST(cuMemcpyHtoD(p, host.data(), host.size()));
  MUST(cuCtxSynchronize());
  MUST(cuIpcCloseMemHandle(p));
  send(out, wrong);
  return 0;
}

}  // namespace waits
