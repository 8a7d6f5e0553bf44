// What the kernels do to memory. A touch of memory nobody allocated fails as on a GPU: by whole pages, and
// the context never recovers. Under the state mutex.
#include "sim/kernels.hpp"

#include <algorithm>
#include <cstring>

#include "sim/state.hpp"

namespace cupool::sim {
namespace {

template <typename T>
T parameter(void** parameters, int index) {
  T value;
  std::memcpy(&value, parameters[index], sizeof value);
  return value;
}

CUresult run_fill(CUdeviceptr p, std::uint64_t bytes, unsigned value, std::uint64_t context_id) {
  if (bytes == 0) return CUDA_SUCCESS;
  std::uint8_t* const memory = device_bytes(p, bytes, context_id, Touch::kWrite);
  if (memory == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  std::memset(memory, static_cast<int>(value & 0xff), bytes);
  return CUDA_SUCCESS;
}

// The verdict is four words: how many bytes were wrong, and where the first is, what it holds and should
// hold.
CUresult run_check(CUdeviceptr p, std::uint64_t bytes, unsigned value, CUdeviceptr verdict,
                   std::uint64_t context_id) {
  const auto expected = static_cast<std::uint8_t>(value);
  std::uint64_t wrong = 0;
  const std::uint8_t* memory = nullptr;
  if (bytes > 0) {
    memory = device_bytes(p, bytes, context_id, Touch::kRead);
    if (memory == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    // All right is the usual case, and comparing the bytes with their neighbours finds it fast.
    const bool all_right = memory[0] == expected && std::memcmp(memory, memory + 1, bytes - 1) == 0;
    if (!all_right) wrong = bytes - static_cast<std::uint64_t>(std::count(memory, memory + bytes, expected));
  }
  std::uint64_t words[4];
  std::uint8_t* const told = device_bytes(verdict, sizeof words, context_id, Touch::kWrite);
  if (told == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (wrong == 0) return CUDA_SUCCESS;
  std::memcpy(words, told, sizeof words);
  if (words[1] == 0) {
    const std::uint8_t* const first =
        std::find_if(memory, memory + bytes, [=](std::uint8_t byte) { return byte != expected; });
    words[1] = p + static_cast<std::uint64_t>(first - memory);
    words[2] = *first;
    words[3] = expected;
  }
  words[0] += wrong;
  std::memcpy(told, words, sizeof words);
  return CUDA_SUCCESS;
}

// A word that is not there ends the wait too: the operation then fails.
bool word_is(CUdeviceptr p, unsigned wanted, std::uint64_t context_id) {
  const std::uint8_t* const memory = device_bytes(p, sizeof wanted, context_id, Touch::kRead);
  return memory == nullptr ||
         __atomic_load_n(reinterpret_cast<const unsigned*>(memory), __ATOMIC_ACQUIRE) == wanted;
}

}  // namespace

bool kernel_by_name(const char* name, KernelKind& kind) {
  for (const KernelKind candidate : {KernelKind::kFill, KernelKind::kCheck, KernelKind::kSpin,
                                     KernelKind::kAwait, KernelKind::kDeep, KernelKind::kHeap}) {
    if (std::strcmp(name, kernel_name(candidate)) == 0) {
      kind = candidate;
      return true;
    }
  }
  return false;
}

const char* kernel_name(KernelKind kind) {
  switch (kind) {
    case KernelKind::kFill:
      return "fill";
    case KernelKind::kCheck:
      return "check";
    case KernelKind::kSpin:
      return "spin";
    case KernelKind::kAwait:
      return "await";
    case KernelKind::kDeep:
      return "deep";
    case KernelKind::kHeap:
      return "heap";
  }
  return "";
}

std::shared_ptr<Work> kernel_work(KernelKind kind, void** parameters, const Context& context) {
  if (parameters == nullptr) return nullptr;
  auto work = std::make_shared<Work>();
  work->what = kernel_name(kind);
  work->kernel = true;
  const std::uint64_t id = context.id;
  if (kind == KernelKind::kSpin) {
    const auto ns = parameter<unsigned long long>(parameters, 0);
    work->steps = static_cast<unsigned>(2 + std::min<unsigned long long>(ns / 1000, 30));
    return work;
  }
  const auto p = parameter<CUdeviceptr>(parameters, 0);
  if (kind == KernelKind::kDeep || kind == KernelKind::kHeap) {
    work->touches.push_back(Span{p, p + 1});
    work->run = [=] { return run_fill(p, 1, 1, id); };
    return work;
  }
  if (kind == KernelKind::kAwait) {
    const auto wanted = parameter<unsigned>(parameters, 1);
    work->touches.push_back(Span{p, p + sizeof wanted});
    work->ready = [=] { return word_is(p, wanted, id); };
    work->run = [=] {
      const bool there = device_bytes(p, sizeof wanted, id, Touch::kRead) != nullptr;
      return there ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
    };
    return work;
  }
  const auto bytes = parameter<std::size_t>(parameters, 1);
  const auto value = parameter<unsigned>(parameters, 2);
  work->touches.push_back(Span{p, p + bytes});
  if (kind == KernelKind::kFill) {
    work->run = [=] { return run_fill(p, bytes, value, id); };
    return work;
  }
  const auto verdict = parameter<CUdeviceptr>(parameters, 3);
  // (The other words are written only where something is wrong.)
  work->touches.push_back(Span{verdict, verdict + sizeof(std::uint64_t)});
  work->run = [=] { return run_check(p, bytes, value, verdict, id); };
  return work;
}

CUresult prepare_launch(KernelKind kind, Context& context) {
  constexpr std::uint64_t kStacks = 64 << 20;
  if (kind == KernelKind::kDeep && !context.has_stacks)
    context.has_stacks = reserve_for_driver(context, kStacks) != 0;
  if (kind == KernelKind::kHeap && !context.has_heap) {
    const auto limit = context.limits.find(CU_LIMIT_MALLOC_HEAP_SIZE);
    const std::uint64_t bytes = limit != context.limits.end() ? limit->second : 8 << 20;
    context.has_heap = reserve_for_driver(context, bytes) != 0;
  }
  if (kind == KernelKind::kDeep && !context.has_stacks) return CUDA_ERROR_OUT_OF_MEMORY;
  // As the real driver says it, though no register is missing.
  if (kind == KernelKind::kHeap && !context.has_heap) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return CUDA_SUCCESS;
}

std::uint8_t* device_bytes(CUdeviceptr p, std::uint64_t bytes, std::uint64_t context_id, Touch touch) {
  State& s = state();
  Arena* const arena = s.arena_of(p);
  if (arena == nullptr) {
    // Pinned and registered host memory is reachable under its own address.
    return s.allocations.holds(p, bytes) ? reinterpret_cast<std::uint8_t*>(p) : nullptr;
  }
  if (!arena->mapped(p, bytes)) return nullptr;
  const auto context = s.context_by_id(context_id);
  if (context == nullptr) return arena->bytes_at(p);
  if (arena == s.reservations.get()) {
    return s.allocations.mapped_for(context->device, p, bytes, touch) ? arena->bytes_at(p) : nullptr;
  }
  if (arena == &s.arena(context->device)) return arena->bytes_at(p);
  // Another device's memory: managed always, the rest by peer access.
  const Allocation* const owner = s.allocations.holding(p);
  if (owner == nullptr) return nullptr;
  const bool open = owner->kind == MemoryKind::kManaged || owner->kind == MemoryKind::kPooled ||
                    owner->kind == MemoryKind::kImported;
  const auto& peers = context->peers;
  if (!open && std::find(peers.begin(), peers.end(), owner->context_id) == peers.end()) return nullptr;
  return arena->bytes_at(p);
}

}  // namespace cupool::sim
