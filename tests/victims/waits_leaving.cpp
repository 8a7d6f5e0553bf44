// Cases of `waits`: memory that leaves the order of the device, to another process, to the host or to a
// network card. It was freed with a long kernel queued and allocated again; when the call that lets it out
// returns, its old life must be over, as it was when the driver's own free returned.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "waits.hpp"

namespace waits {
namespace {

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

// Before the first use of CUDA, which does not survive a fork. A program of its own, without any pool.
Importer start_importer() {
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) die("pipe", 1);
  Importer made;
  made.process = fork();
  if (made.process == 0) {
    unsetenv("LD_PRELOAD");
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

template <typename T>
void send(int pipe, const T& value) {
  if (write(pipe, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) die("write", 1);
}

template <typename T>
bool receive(int pipe, T* out) {
  auto* at = reinterpret_cast<char*>(out);
  for (size_t left = sizeof(T); left > 0;) {
    const ssize_t got = read(pipe, at, left);
    if (got <= 0) return false;
    at += got;
    left -= static_cast<size_t>(got);
  }
  return true;
}

unsigned count_others(const std::vector<unsigned char>& bytes, unsigned char value) {
  return static_cast<unsigned>(bytes.size()) -
         static_cast<unsigned>(std::count(bytes.begin(), bytes.end(), value));
}

// Frees memory with a long kernel queued that writes it, and allocates the same size again. `over` is set
// when the old work is done.
CUdeviceptr second_life(const Device& d, size_t bytes, CUstream stream, const Word& over) {
  const CUdeviceptr old = d.alloc(bytes);
  d.use(old, bytes, 60, stream);
  d.spin(kLongNs, stream);
  d.fill(old, bytes, 61, stream);
  over.write_on(stream);
  d.free(old);
  return d.alloc(bytes);
}

int verdict(const Device& d, bool over) {
  if (!over) std::printf("waits: the old life of the memory goes on\n");
  return d.finish() != 0 || !over ? 1 : 0;
}

// The other process reads what this one wrote, and writes in turn; the old kernel must not come after it.
int ipc(size_t bytes) {
  const Importer importer = start_importer();
  MUST(cuInit(0));
  const Device d;
  const Word over;
  const CUstream s1 = d.stream();
  const CUdeviceptr p = second_life(d, bytes, s1, over);
  Offer offer = {};
  MUST(cuIpcGetMemHandle(&offer.handle, p));
  const bool done = over.get() == 1;
  d.fill(p, bytes, 62, s1);
  MUST(cuStreamSynchronize(s1));
  offer.bytes = bytes;
  offer.found = 62;
  offer.written = 63;
  send(importer.to, offer);
  unsigned wrong = 1;
  if (!receive(importer.from, &wrong)) die("the importer gave up", 1);
  MUST(cuCtxSynchronize());
  d.check(p, bytes, 63, s1);
  int status = 1;
  waitpid(importer.process, &status, 0);
  if (wrong != 0) std::printf("waits: the other process found %u wrong bytes\n", wrong);
  return verdict(d, done) != 0 || wrong != 0 || status != 0 ? 1 : 0;
}

// The other process writes first: nothing of the first process touches the memory's new life.
int ipc_written() {
  const Importer importer = start_importer();
  MUST(cuInit(0));
  const Device d;
  const Word over;
  const CUstream s1 = d.stream();
  const CUdeviceptr p = second_life(d, kBytes, s1, over);
  Offer offer = {};
  MUST(cuIpcGetMemHandle(&offer.handle, p));
  offer.bytes = kBytes;
  offer.written = 64;
  send(importer.to, offer);
  unsigned wrong = 1;
  if (!receive(importer.from, &wrong)) die("the importer gave up", 1);
  MUST(cuCtxSynchronize());
  d.check(p, kBytes, 64, s1);
  int status = 1;
  waitpid(importer.process, &status, 0);
  return d.finish() != 0 || status != 0 ? 1 : 0;
}

// From here on synchronous copies may be made by others than this program's streams.
int sync_memops() {
  MUST(cuInit(0));
  const Device d;
  const Word over;
  const CUstream s1 = d.stream(), s2 = d.stream();
  const CUdeviceptr p = second_life(d, kBytes, s1, over);
  const unsigned on = 1;
  MUST(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  const bool done = over.get() == 1;
  const std::vector<unsigned char> host(kBytes, 65);
  MUST(cuMemcpyHtoD(p, host.data(), host.size()));
  d.check(p, kBytes, 65, s2);
  return verdict(d, done);
}

int tokens() {
  MUST(cuInit(0));
  const Device d;
  const Word over;
  const CUdeviceptr p = second_life(d, kBytes, d.stream(), over);
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS out = {};
  if (cuPointerGetAttribute(&out, CU_POINTER_ATTRIBUTE_P2P_TOKENS, p) != CUDA_SUCCESS)
    skip("no tokens on this device");
  return verdict(d, over.get() == 1);
}

int dma_buf() {
  MUST(cuInit(0));
  const Device d;
  const Word over;
  const CUdeviceptr p = second_life(d, kBytes, d.stream(), over);
  int file = -1;
  if (cuMemGetHandleForAddressRange(&file, p, kBytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) != CUDA_SUCCESS)
    skip("no dma-buf of this memory on this device");
  const bool done = over.get() == 1;
  close(file);
  return verdict(d, done);
}

// Managed memory is the host's at once.
int managed() {
  MUST(cuInit(0));
  const Device d;
  const Word over;
  const CUstream s1 = d.stream();
  CUdeviceptr p = 0;
  MUST(cuMemAllocManaged(&p, kMiB, CU_MEM_ATTACH_GLOBAL));
  d.spin(kLongNs, s1);
  d.fill(p, kMiB, 66, s1);
  over.write_on(s1);
  d.free(p);
  MUST(cuMemAllocManaged(&p, kMiB, CU_MEM_ATTACH_GLOBAL));
  const bool done = over.get() == 1;
  std::memset(reinterpret_cast<void*>(p), 67, kMiB);
  d.check(p, kMiB, 67, d.stream());
  return verdict(d, done);
}

// What leaves waits for its old life and for nothing newer: a stream that is released later may wait
// meanwhile.
int while_waiting(bool by_handle) {
  MUST(cuInit(0));
  const Device d;
  const Word over, word;
  const CUstream s1 = d.stream(), s2 = d.stream();
  const CUdeviceptr old = d.alloc(kBytes);
  d.spin(kLongNs / 10, s2);
  d.fill(old, kBytes, 68, s2);
  over.write_on(s2);
  d.free(old);
  word.wait_on(s1);
  const CUdeviceptr p = d.alloc(kBytes);
  if (by_handle) {
    CUipcMemHandle handle;
    MUST(cuIpcGetMemHandle(&handle, p));
  } else {
    const unsigned on = 1;
    MUST(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  }
  const bool done = over.get() == 1;
  d.use(p, kBytes, 69, s2);
  word.write_on(s2);
  return verdict(d, done);
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
          {"managed-touched", managed},
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
