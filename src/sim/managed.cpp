// The fault handler, the table it reads and the list it writes. The handler may only do what a signal handler
// may: it notes the touch, opens the page and returns; the next driver call, before anything else, tells the
// oracle. Nothing the host can have seen changes in between. Faults that are not ours go to whoever handled
// them before.
#include "sim/managed.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "sim/arena.hpp"
#include "sim/state.hpp"

namespace cupool::sim {
namespace {

struct Region {
  std::atomic<CUdeviceptr> lo{0};
  std::atomic<CUdeviceptr> hi{0};
};

constexpr std::size_t kRegions = 4096;
Region regions[kRegions];
std::atomic<std::size_t> regions_used{0};
struct sigaction previous;

// Touches not yet told. A slot is taken by counting up and filled by the handler that took it.
constexpr std::size_t kTouches = 4096;
std::atomic<CUdeviceptr> touches[kTouches];
std::atomic<std::size_t> touches_taken{0};

bool inside_managed(CUdeviceptr p) {
  const std::size_t used = regions_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    if (p >= regions[i].lo.load(std::memory_order_acquire) &&
        p < regions[i].hi.load(std::memory_order_acquire)) {
      return true;
    }
  }
  return false;
}

std::uint64_t page_size() {
  static const auto size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

void pass_on(int number, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(number, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  } else {
    signal(number, SIG_DFL);  // the same instruction faults again, for good
  }
}

void on_fault(int number, siginfo_t* info, void* context) {
  const auto p = reinterpret_cast<CUdeviceptr>(info->si_addr);
  if (driver_life.load() != Life::kRunning || !inside_managed(p)) {
    pass_on(number, info, context);
    return;
  }
  const CUdeviceptr page = p / page_size() * page_size();
  const std::size_t slot = touches_taken.fetch_add(1, std::memory_order_acq_rel);
  if (slot < kTouches) touches[slot].store(p, std::memory_order_release);
  mprotect(reinterpret_cast<void*>(page), page_size(), PROT_READ | PROT_WRITE);
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous);
  });
}

}  // namespace

void show_managed(const Allocation& allocation) {
  install_handler();
  const Arena& arena = state().arena(allocation.device);
  (void)mmap(reinterpret_cast<void*>(allocation.base), allocation.granules * kGranule, PROT_NONE,
             MAP_SHARED | MAP_FIXED | MAP_NORESERVE, arena.fd(),
             static_cast<off_t>(arena.offset_of(allocation.base)));
  madvise(reinterpret_cast<void*>(allocation.base), allocation.granules * kGranule, MADV_DONTFORK);
  for (std::size_t i = 0; i < kRegions; ++i) {
    if (regions[i].lo.load() != 0) continue;
    regions[i].hi.store(allocation.base + allocation.granules * kGranule);
    regions[i].lo.store(allocation.base, std::memory_order_release);
    if (i >= regions_used.load()) regions_used.store(i + 1, std::memory_order_release);
    return;
  }
}

void hide_managed(const Allocation& allocation) {
  for (std::size_t i = 0; i < regions_used.load(); ++i) {
    if (regions[i].lo.load() != allocation.base) continue;
    regions[i].hi.store(0);
    regions[i].lo.store(0);
  }
  (void)mmap(reinterpret_cast<void*>(allocation.base), allocation.granules * kGranule, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

void tell_host_touches() {
  if (touches_taken.load(std::memory_order_acquire) == 0) return;
  const std::size_t taken = std::min(touches_taken.exchange(0, std::memory_order_acq_rel), kTouches);
  for (std::size_t i = 0; i < taken; ++i) {
    const CUdeviceptr p = touches[i].exchange(0, std::memory_order_acq_rel);
    if (p != 0) state().oracle.host_touch(p, p + 1, state().host);
  }
}

void protect_managed(CUdeviceptr p, std::uint64_t bytes) {
  if (!inside_managed(p)) return;
  const CUdeviceptr first = p / page_size() * page_size();
  const CUdeviceptr end = (p + bytes + page_size() - 1) / page_size() * page_size();
  mprotect(reinterpret_cast<void*>(first), end - first, PROT_NONE);
}

}  // namespace cupool::sim
