// The kernels as the torture victim launches them. See torture_world.hpp.
#include "torture_world.hpp"

#include <cstddef>
#include <cstring>
#include <new>

namespace torture {

namespace {
const char kKernels[] =
#include "kernels.ptx.inc"
    ;
}  // namespace

void Kernels::load() {
  CUmodule module = nullptr;
  MUST(cuModuleLoadData(&module, kKernels));
  MUST(cuModuleGetFunction(&fill_, module, "fill"));
  MUST(cuModuleGetFunction(&check_, module, "check"));
  MUST(cuModuleGetFunction(&spin_, module, "spin"));
  MUST(cuModuleGetFunction(&await_, module, "await"));
  void* memory = nullptr;
  MUST(cuMemHostAlloc(&memory, sizeof(Verdict), CU_MEMHOSTALLOC_DEVICEMAP));
  told_ = new (memory) Verdict{};
  MUST(cuMemHostGetDevicePointer(&verdict_, memory, 0));
  Lease legacy;
  legacy.mark.kind = Mark::kLegacy;
  const CUdeviceptr scratch = verdict_ + offsetof(Verdict, scratch);
  fill(scratch, 1, 7, legacy);
  check(scratch, 1, 7, legacy);
  spin(1, legacy);
  if (options.has_any(kAwaits | kMeets)) {
    fill(scratch, sizeof(unsigned), 0, legacy);
    await(scratch, 0, legacy);
  }
  MUST(cuCtxSynchronize());
}

void Kernels::launch(CUfunction function, std::uint64_t bytes, void** parameters, const Lease& lease) const {
  constexpr unsigned kThreads = 256;
  constexpr std::uint64_t kMostBlocks = 512;
  const std::uint64_t blocks = (bytes + kThreads - 1) / kThreads;
  const unsigned grid = static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
  MUST(lease.pick(api_.cuLaunchKernel)(function, grid, 1, 1, kThreads, 1, 1, 0, lease.stream, parameters,
                                       nullptr));
}

void Kernels::fill(CUdeviceptr p, std::uint64_t bytes, unsigned value, const Lease& lease) const {
  void* parameters[] = {&p, &bytes, &value};
  launch(fill_, bytes, parameters, lease);
}

void Kernels::check(CUdeviceptr p, std::uint64_t bytes, unsigned value, const Lease& lease) const {
  CUdeviceptr verdict = verdict_;
  void* parameters[] = {&p, &bytes, &value, &verdict};
  launch(check_, bytes, parameters, lease);
}

void Kernels::spin(unsigned long long ns, const Lease& lease) const {
  void* parameters[] = {&ns};
  launch(spin_, 1, parameters, lease);
}

void Kernels::await(CUdeviceptr word, unsigned value, const Lease& lease) const {
  void* parameters[] = {&word, &value};
  MUST(lease.pick(api_.cuLaunchKernel)(await_, 1, 1, 1, 1, 1, 1, 0, lease.stream, parameters, nullptr));
}

std::optional<unsigned long long> Kernels::verdict() const {
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (cuCtxSynchronize() == CUDA_SUCCESS) return wrong_so_far();
  }
  return std::nullopt;
}

void Meetings::prepare() {
  constexpr std::size_t kBytes = 2 * kMost * sizeof(unsigned);
  void* memory = nullptr;
  MUST(cuMemHostAlloc(&memory, kBytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  std::memset(memory, 0, kBytes);
  MUST(cuMemHostGetDevicePointer(&words_, memory, 0));
}

CUdeviceptr Meetings::word(unsigned place, unsigned turn) const {
  return words_ + (2 * turn + place) * sizeof(unsigned);
}

std::optional<unsigned> Meetings::begin(unsigned place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Rank& mine = ranks_[place];
  const Rank& others = ranks_[1 - place];
  const unsigned turn = mine.begun;
  const bool leads = turn >= others.begun;
  if (leads && (mine.is_closed || others.is_closed || turn == kMost || turn == others.begun + kAhead))
    return std::nullopt;
  ++mine.begun;
  return turn;
}

void Meetings::close(unsigned place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ranks_[place].is_closed = true;
}

CUdeviceptr Kernels::tell_first() const {
  std::fprintf(stderr, "torture: the byte at %#llx is %#llx and should be %#llx\n", told_->where,
               told_->found, told_->expected);
  return told_->where;
}

}  // namespace torture
