// alter [COUNT]: a sealed handle, altered in every one of its 64 bytes and then at random COUNT times, is
// opened by a second process: it gets the block that was sealed or is refused, never another place.
#include <sys/wait.h>

#include <random>
#include <string>

#include "share.hpp"

namespace {

constexpr size_t kBytes = 4096;
constexpr unsigned char kOurs = 0xA7;

struct Tally {
  unsigned long tried = 0;
  unsigned long opened = 0;
  unsigned long wrong = 0;
};

void attempt(const CUipcMemHandle& altered, Tally* tally) {
  ++tally->tried;
  CUdeviceptr block = 0;
  if (cuIpcOpenMemHandle(&block, altered, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS) return;
  ++tally->opened;
  unsigned char host[kBytes] = {};
  if (cuMemcpyDtoH(host, block, kBytes) != CUDA_SUCCESS || share::count_others(host, kBytes, kOurs) != 0)
    ++tally->wrong;
  cuIpcCloseMemHandle(block);
}

Tally attack(const share::Offer& offer, unsigned long count) {
  Tally tally;
  CUdeviceptr block = 0;
  MUST(cuIpcOpenMemHandle(&block, offer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  MUST(cuIpcCloseMemHandle(block));
  for (size_t byte = 0; byte < sizeof offer.handle; ++byte) {
    for (const int bits : {0x01, 0x80, 0xFF}) {
      CUipcMemHandle altered = offer.handle;
      altered.reserved[byte] = static_cast<char>(altered.reserved[byte] ^ bits);
      attempt(altered, &tally);
    }
  }
  std::mt19937_64 random(1);
  for (unsigned long i = 0; i < count; ++i) {
    CUipcMemHandle altered = offer.handle;
    for (unsigned long n = random() % 4 + 1; n > 0; --n) {
      char& byte = altered.reserved[random() % sizeof altered.reserved];
      byte = static_cast<char>(random() % 2 == 0 ? random() : byte ^ (1 << random() % 8));
    }
    if (std::memcmp(&altered, &offer.handle, sizeof altered) != 0) attempt(altered, &tally);
  }
  return tally;
}

int run_attacker(int from, int to, unsigned long count) {
  share::begin_device();
  share::Offer offer = {};
  if (!share::receive(from, &offer)) return 3;
  share::send(to, attack(offer, count));
  return 0;
}

}  // namespace

int main(int arguments, char** words) {
  if (arguments == 5)
    return run_attacker(std::atoi(words[2]), std::atoi(words[3]), std::strtoul(words[4], nullptr, 10));
  const std::string count = arguments > 1 ? words[1] : "20000";
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) share::die("pipe", 1);
  // Before the first use of CUDA, which does not survive a fork.
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", words[0], "attack", std::to_string(down[0]).c_str(),
          std::to_string(up[1]).c_str(), count.c_str(), nullptr);
    _exit(3);
  }
  share::begin_device();
  // Neighbours with other contents, so that another place shows.
  CUdeviceptr blocks[64];
  for (CUdeviceptr& block : blocks) {
    MUST(cuMemAlloc(&block, kBytes));
    MUST(cuMemsetD8(block, 0x11, kBytes));
  }
  MUST(cuMemsetD8(blocks[20], kOurs, kBytes));
  MUST(cuCtxSynchronize());
  share::Offer offer = {};
  MUST(cuIpcGetMemHandle(&offer.handle, blocks[20]));
  share::send(down[1], offer);
  close(up[1]);
  Tally tally;
  const bool told = share::receive(up[0], &tally);
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("alter: tried=%lu opened=%lu wrong=%lu child=%d\n", tally.tried, tally.opened, tally.wrong,
              status);
  return told && status == 0 && tally.wrong == 0 ? 0 : 1;
}
