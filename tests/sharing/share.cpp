// share [bare]: exports blocks of many sizes to a second process, which with `bare` runs without any
// preloaded library.
#include "share.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr size_t kSizes[] = {4,     511,     512,           513,     4096,     32768,   32769,
                             65537, 1 << 20, (1 << 20) + 1, 3 << 20, 20 << 20, 40000000};
constexpr unsigned kRounds = 3;

struct Exported {
  CUdeviceptr block;
  share::Offer offer;
};

Exported export_block(size_t bytes, unsigned char value, size_t inside) {
  Exported made = {};
  MUST(cuMemAlloc(&made.block, bytes));
  MUST(cuMemsetD8(made.block, value, bytes));
  MUST(cuIpcGetMemHandle(&made.offer.handle, made.block + inside));
  made.offer.bytes = bytes;
  made.offer.inside = inside;
  made.offer.value = value;
  return made;
}

// What the importer was allowed to open it has changed; what it was refused is as before.
unsigned count_wrong(const Exported& exported, bool changed) {
  const size_t half = exported.offer.bytes / 2;
  std::vector<unsigned char> host(exported.offer.bytes);
  MUST(cuMemcpyDtoH(host.data(), exported.block, host.size()));
  const unsigned char after = changed ? exported.offer.value ^ share::kChange : exported.offer.value;
  return share::count_others(host.data(), half, exported.offer.value) +
         share::count_others(host.data() + half, host.size() - half, after);
}

pid_t start_importer(const char* self, const std::string& how, int* to, int* from) {
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) share::die("pipe", 1);
  const pid_t child = fork();
  if (child == 0) {
    if (how == "bare") unsetenv("LD_PRELOAD");
    if (how == "off") setenv("CUPOOL_BACKEND", "off", 1);
    close(down[1]);
    close(up[0]);
    execl(self, self, "import", std::to_string(down[0]).c_str(), std::to_string(up[1]).c_str(), nullptr);
    _exit(3);
  }
  close(down[0]);
  close(up[1]);
  *to = down[1];
  *from = up[0];
  return child;
}

}  // namespace

int main(int count, char** words) {
  if (count == 4 && std::strcmp(words[1], "import") == 0) {
    return share::import_all(std::atoi(words[2]), std::atoi(words[3]));
  }
  const std::string how = count > 1 ? words[1] : "";
  int to = 0, from = 0;
  // Before the first use of CUDA, which does not survive a fork.
  const pid_t child = start_importer("/proc/self/exe", how, &to, &from);
  share::begin_device();
  std::vector<Exported> all;
  unsigned char value = 1;
  for (unsigned round = 0; round < kRounds; ++round) {
    std::vector<CUdeviceptr> passing;
    for (const size_t bytes : kSizes) {
      // Neighbours that come and go, so that blocks are cut, recycled and not alone.
      CUdeviceptr p = 0;
      MUST(cuMemAlloc(&p, bytes));
      passing.push_back(p);
      if (value == 0xFF) value = 1;
      all.push_back(export_block(bytes, value++, round == 1 ? bytes / 2 : 0));
    }
    for (const CUdeviceptr p : passing) MUST(cuMemFree(p));
  }
  MUST(cuCtxSynchronize());
  for (const Exported& exported : all) share::send(to, exported.offer);
  share::send(to, share::Offer{});
  share::Verdict verdict;
  if (!share::receive(from, &verdict)) share::die("the importer ended early", 1);
  int status = 0;
  waitpid(child, &status, 0);
  for (const Exported& exported : all) {
    const unsigned unchanged = count_wrong(exported, false);
    // Whether this one was opened is not told: all of it was changed, or nothing.
    verdict.wrong += std::min(unchanged, count_wrong(exported, true));
    verdict.wrong += unchanged != 0 && verdict.opened == 0;
    MUST(cuMemFree(exported.block));
  }
  std::printf("share: blocks=%zu opened=%u refused=%u wrong=%u child=%d\n", all.size(), verdict.opened,
              verdict.refused, verdict.wrong, status);
  return verdict.wrong == 0 && status == 0 ? 0 : 1;
}
