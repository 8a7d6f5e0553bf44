// A listener that keeps an account of all device memory in use (CUPOOL_STATS=text): around calls that are
// known to take or give memory for something that is not the pool's, the driver is asked what is free. What
// has changed since the last look, less what cupool knows of, is theirs; what changed between them is that of
// the work. Only calls that take tens of microseconds anyway are looked at on both sides, others when one
// took so long. One account of each device under one lock, which is not held while the driver is asked. No
// call of memory or of work is seen here: the paths of both stay as they are.
#include "hooks/observe/charges.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string_view>

#include "base/after_fork.hpp"
#include "base/clock.hpp"
#include "base/own_call.hpp"
#include "cuda/nvml.hpp"
#include "cuda/relaxed_capture.hpp"
#include "hooks/observe/observer.hpp"
#include "hooks/state/scoped_context.hpp"
#include "hooks/state/serving.hpp"
#include "report/report.hpp"
#include "stats/counters.hpp"

namespace cupool::hooks::observe {

extern const Listener charges_listener;

namespace {

using cuda::real;
using report::Charge;
using report::Charges;
using report::charges_lock;
using std::string_view;

// ---- Which calls.

struct CallKind {
  Charge charge = Charge::work;
  bool is_looked_at = false;  // if it took long
  bool is_slow = false;       // always, on both sides
};

consteval bool begins(string_view name, std::initializer_list<string_view> with) {
  return std::any_of(with.begin(), with.end(), [&](string_view one) { return name.starts_with(one); });
}

consteval CallKind kind_of(string_view name) {
  const auto slow = [](Charge charge) { return CallKind{charge, true, true}; };
  const auto quick = [](Charge charge) { return CallKind{charge, true, false}; };
  if (begins(name, {"cuStreamCreate", "cuStreamDestroy", "cuGreenCtxStreamCreate"}))
    return slow(Charge::streams);
  if (begins(name, {"cuCtxCreate", "cuCtxDestroy", "cuCtxDetach", "cuDevicePrimaryCtxRe", "cuGreenCtxCreate",
                    "cuGreenCtxDestroy", "cuCtxFromGreenCtx"}))
    return slow(Charge::contexts);
  if (begins(name, {"cuModuleLoad", "cuLibraryLoad", "cuLinkComplete", "cuFuncLoad"}))
    return slow(Charge::code);
  if (begins(name, {"cuModule", "cuLibrary", "cuKernel", "cuFunc"})) return quick(Charge::code);
  if (begins(name, {"cuCtxSetLimit"})) return slow(Charge::limits);
  if (begins(name, {"cuGraphInstantiate"})) return slow(Charge::graphs);
  if (begins(name, {"cuGraph"})) return quick(Charge::graphs);
  if (begins(name, {"cuEventCreate", "cuIpcGetEvent", "cuIpcOpenEvent"})) return quick(Charge::streams);
  if (begins(name, {"cuArray", "cuMipmapped"})) return slow(Charge::arrays);
  if (begins(name, {"cuMemCreate", "cuMemRelease", "cuMemUnmap"})) return slow(Charge::mapped);
  if (begins(name, {"cuMemMap", "cuMemSetAccess", "cuMulticast"})) return quick(Charge::mapped);
  if (begins(name,
             {"cuIpcOpenMem", "cuIpcCloseMem", "cuCtxEnablePeer", "cuCtxDisablePeer",
              "cuMemImportFromShareableHandle", "cuMemPoolImport", "cuImportExternal", "cuExternalMemory"}))
    return slow(Charge::shared);
  if (begins(name, {"cuMemAllocHost", "cuMemHostAlloc", "cuMemHostRegister", "cuMemFreeHost",
                    "cuMemHostUnregister"}))
    return slow(Charge::host_memory);
  if (begins(name, {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocPitch"})) return slow(Charge::driver_served);
  if (begins(name,
             {"cuTexObject", "cuSurfObject", "cuMemPool", "cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool"}))
    return quick(Charge::other_calls);
  return {};
}

constexpr CallKind kKinds[] = {
#define CUPOOL_ROW(symbol, like) kind_of(#symbol),
#include "cuda/api.def"
};

const CallKind& kind_of(cuda::Call call) { return kKinds[static_cast<size_t>(call)]; }

// ---- What cupool knows of.

// Memory pools that the program has made; with more than these the rest counts as work.
struct KnownPool {
  std::atomic<uint64_t> handle{0};
  std::atomic<int> device{0};
};
constinit std::array<KnownPool, 32> pools{};
// Threads that ask a pool: it is not destroyed meanwhile.
constinit std::atomic<int> asking{0};

uint64_t reserved_in(CUmemoryPool pool) {
  cuuint64_t bytes = 0;
  return real.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS
             ? bytes
             : 0;
}

uint64_t stream_ordered_on(int device) {
  static constinit std::atomic<bool> is_used{false};
  if (!is_used.load(std::memory_order_relaxed)) {
    if (stats::sums().async_allocations == 0) return 0;
    is_used.store(true, std::memory_order_relaxed);
  }
  CUmemoryPool pool = nullptr;
  uint64_t sum = real.cuDeviceGetDefaultMemPool(&pool, device) == CUDA_SUCCESS ? reserved_in(pool) : 0;
  asking.fetch_add(1);
  for (const KnownPool& one : pools) {
    const uint64_t handle = one.handle.load();
    if (handle != 0 && one.device.load(std::memory_order_relaxed) == device)
      sum += reserved_in(reinterpret_cast<CUmemoryPool>(handle));
  }
  asking.fetch_sub(1);
  return sum;
}

uint64_t graph_memory_on(int device) {
  cuuint64_t bytes = 0;
  return real.cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) ==
                 CUDA_SUCCESS
             ? bytes
             : 0;
}

void fill_known(int device, Charges* out) {
  const stats::DeviceSums sums = stats::device(device).read();
  driver::NativeUsage native;
  if (native::NativePool* const one = memory.native(); one != nullptr && one->can_be_asked())
    native = one->usage(device);
  // Blocks of the native pool count among the live ones.
  const uint64_t live =
      std::min(sums.live_bytes - std::min(sums.live_bytes, native.used), sums.reserved_bytes);
  Charges& charges = *out;
  charges[Charge::pool_live] = static_cast<int64_t>(live);
  charges[Charge::pool_cached] = static_cast<int64_t>(sums.reserved_bytes - live);
  charges[Charge::native_pool] = static_cast<int64_t>(native.reserved);
  charges[Charge::stream_ordered] = static_cast<int64_t>(stream_ordered_on(device));
  charges[Charge::graph_memory] = static_cast<int64_t>(graph_memory_on(device));
}

uint64_t managed_bytes() {
  uint64_t sum = 0;
  memory.for_each_allocator([&](auto& one) {
    using One = std::remove_reference_t<decltype(one)>;
    if constexpr (std::is_same_v<One, dedicated::DedicatedBlocks>) {
      if (one.is_host_visible())
        static_cast<allocator::Allocator&>(one).for_each_live(
            [&](const allocator::BlockInfo& block) { sum += block.given; });
    }
  });
  return sum;
}

// ---- The accounts.

struct Account {
  bool is_begun = false;
  int64_t others = 0;  // in use by everybody at the last look, less what cupool knows of
  uint64_t looks = 0;  // a look that began before another one ended says nothing
  bool has_before = false;
  uint64_t before = 0;  // in use before the first context, as NVML said
  // Calls that are under way, and the kind of the one that began last; or of one after which nobody could
  // look.
  int open = 0;
  Charge open_kind = Charge::work;
  bool is_due = false;
  Charge due_kind = Charge::work;
  std::array<int64_t, report::kCharges> seen{};
};
constinit Account accounts[stats::kMostDevices];
constinit std::atomic<bool> is_on{false};
constinit std::atomic<bool> knew_before{false};

CUPOOL_AFTER_FORK(charge_accounts_after_fork, []() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  for (Account& one : accounts) one = {};
  for (KnownPool& one : pools) one.handle.store(0);
  asking.store(0);
  knew_before.store(false);
});

bool is_known(int device) { return device >= 0 && device < stats::kMostDevices; }

// Before the first context there is none with which the driver could be asked.
void ask_before_first_context() {
  int count = 0;
  if (knew_before.load(std::memory_order_relaxed) || real.cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
  if (knew_before.exchange(true)) return;
  const cuda::Nvml nvml;
  for (int device = 0; device < std::min(count, stats::kMostDevices); ++device) {
    uint64_t bytes = 0;
    if (!nvml.in_use(device, &bytes)) continue;
    Guard hold(charges_lock);
    Account& account = accounts[device];
    if (account.is_begun) continue;
    account.has_before = true;
    account.before = bytes;
  }
}

// What is in use on the device of the current context, less what cupool knows of.
bool ask_driver(int* device, int64_t* others) {
  const cuda::RelaxedCapture allowed;
  CUdevice here = 0;
  size_t free = 0;
  size_t total = 0;
  if (real.cuCtxGetDevice(&here) != CUDA_SUCCESS || !is_known(here) ||
      real.cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS || free > total)
    return false;
  Charges known;
  fill_known(here, &known);
  *device = here;
  *others = static_cast<int64_t>(total - free) - known.explained();
  return true;
}

uint64_t looks_at(int device) {
  Guard hold(charges_lock);
  return accounts[device].looks;
}

// The first look at a device: all that is in use and was not before is that of its contexts.
void begin_account(int device, int64_t others) {
  uint64_t now = 0;
  const bool is_told = cuda::Nvml().in_use(device, &now);
  Charges known;
  fill_known(device, &known);
  Guard hold(charges_lock);
  Account& account = accounts[device];
  if (account.is_begun) return;
  account.is_begun = true;
  account.is_due = false;
  account.others = others;
  if (is_told && account.has_before)
    account.seen[static_cast<size_t>(Charge::contexts)] =
        static_cast<int64_t>(now) - static_cast<int64_t>(account.before) - known.explained();
}

enum class Side { kBefore, kAfter, kBetween };

// Looks at the device of the current context, and returns its number, or -1: nobody could tell.
int look(Side side, Charge kind) {
  constexpr int kMostTries = 3;
  const OwnCall own;
  int device = -1;
  int64_t others = 0;
  for (int i = 0; i < kMostTries; ++i) {
    CUdevice here = 0;
    if (real.cuCtxGetDevice(&here) != CUDA_SUCCESS || !is_known(here)) return -1;
    const uint64_t looks = looks_at(here);
    if (!ask_driver(&device, &others)) return -1;
    Guard hold(charges_lock);
    Account& account = accounts[device];
    if (!account.is_begun) break;
    if (account.looks != looks && i + 1 < kMostTries) continue;
    ++account.looks;
    Charge whose = kind;
    if (side != Side::kAfter) whose = account.open != 0 ? account.open_kind : Charge::work;
    if (account.is_due) whose = account.due_kind;
    account.is_due = false;
    account.seen[static_cast<size_t>(whose)] += others - account.others;
    account.others = others;
    return device;
  }
  begin_account(device, others);
  return device;
}

// ---- What the listener is told.

// The call of this thread that is under way, and the device that it was looked at on.
struct Under {
  int depth = 0;
  int device = -1;
};
constinit thread_local Under under{};

bool is_wanted() {
  const bool is_asked = report::writes_text();
  is_on.store(is_asked, std::memory_order_relaxed);
  if (!is_asked) return false;
  report::expect_charges();
  // The first call that comes to us may be the one that makes a context, and is not told yet.
  ask_before_first_context();
  return true;
}

void calling(const Calling& what) {
  const CallKind& kind = kind_of(what.call);
  if (!kind.is_slow || under.depth++ != 0) return;
  if (kind.charge == Charge::contexts) ask_before_first_context();
  under.device = look(Side::kBefore, kind.charge);
  if (under.device < 0) return;
  Guard hold(charges_lock);
  ++accounts[under.device].open;
  accounts[under.device].open_kind = kind.charge;
}

void called(const Called& what) {
  const CallKind& kind = kind_of(what.call);
  if (!kind.is_slow) {
    if (kind.is_looked_at && what.ns >= kLong && under.depth == 0) look(Side::kAfter, kind.charge);
    return;
  }
  if (under.depth == 0 || --under.depth != 0) return;
  const int before = under.device;
  const int after = look(Side::kAfter, kind.charge);
  if (before < 0) return;
  Guard hold(charges_lock);
  Account& account = accounts[before];
  account.open -= account.open > 0 ? 1 : 0;
  if (after == before) return;
  account.is_due = true;
  account.due_kind = kind.charge;
}

void ask_again(int device) {
  CUdevice here = 0;
  bool is_done = real.cuCtxGetDevice(&here) == CUDA_SUCCESS && here == device;
  if (is_done) look(Side::kBetween, Charge::work);
  // Else by a context of the program's in which the pool has memory.
  memory.order().for_each([&](const order::Timeline& timeline) {
    int owner = -1;
    if (is_done || !memory.device_of(timeline.context(), &owner) || owner != device) return;
    const ScopedContext current(reinterpret_cast<CUcontext>(timeline.context()));
    look(Side::kBetween, Charge::work);
    is_done = true;
  });
}

}  // namespace

constinit const Listener charges_listener{.is_wanted = is_wanted, .calling = calling, .called = called};

Charges charges_of(int device) {
  Charges charges;
  if (!is_known(device)) return charges;
  const OwnCall own;
  const bool is_watched = is_on.load(std::memory_order_relaxed);
  if (is_watched) ask_again(device);
  fill_known(device, &charges);
  const int64_t least = charges.explained();
  uint64_t before = 0;
  bool has_before = false;
  bool is_due = false;
  Charge due_kind = Charge::work;
  {
    Guard hold(charges_lock);
    const Account& account = accounts[device];
    for (size_t i = 0; i < report::kCharges; ++i) charges.parts[i] += account.seen[i];
    has_before = account.has_before;
    before = account.before;
    is_due = account.is_due;
    due_kind = account.due_kind;
  }
  charges.at = now_ns();
  charges.is_watched = is_watched;
  charges.managed = managed_bytes();
  const cuda::Nvml nvml;
  uint64_t bytes = 0;
  // In a container the number of this process may be that of another one for NVML.
  if (nvml.charged(device, &bytes) && static_cast<int64_t>(bytes) >= least) {
    charges.by = Charges::By::kNvml;
    charges.charged = bytes;
  } else if (has_before && nvml.in_use(device, &bytes)) {
    charges.by = Charges::By::kDifference;
    charges.charged = bytes - std::min(bytes, before);
  }
  // The last context has ended: nobody can look any more, but NVML tells what the end gave back.
  if (is_due && charges.by != Charges::By::kNobody) charges[due_kind] += charges.unexplained();
  return charges;
}

void look_at_charges() {
  if (!is_on.load(std::memory_order_relaxed)) return;
  for (int device = 0; device < stats::kMostDevices; ++device) {
    bool is_begun = false;
    {
      Guard hold(charges_lock);
      is_begun = accounts[device].is_begun;
    }
    // (Where no call was looked at yet, this is the first look.)
    if (is_begun || stats::device(device).is_used()) report::note_charges(device, charges_of(device));
  }
}

void note_pool(int device, uint64_t handle) {
  for (KnownPool& one : pools) {
    uint64_t nobody = 0;
    if (one.handle.load(std::memory_order_relaxed) != 0) continue;
    one.device.store(device, std::memory_order_relaxed);
    if (one.handle.compare_exchange_strong(nobody, handle)) return;
  }
}

void forget_pool(uint64_t handle) {
  constexpr int kMostTurns = 1000;
  for (KnownPool& one : pools) {
    uint64_t known = handle;
    one.handle.compare_exchange_strong(known, 0);
  }
  for (int turn = 0; turn < kMostTurns && asking.load() != 0; ++turn) Lock::wait_a_little(turn);
}

}  // namespace cupool::hooks::observe
