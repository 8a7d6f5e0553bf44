// A listener that records what it is told in a trace (CUPOOL_TRACE, trace/recorder.hpp). Only translates:
// which kind of memory it is and of which device, for what the host waited. Asks the driver how much is free
// after calls that may have changed it, never while a stream captures. Holds no lock.
#include "hooks/observe/trace.hpp"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "base/after_fork.hpp"
#include "base/log.hpp"
#include "base/own_call.hpp"
#include "base/version.hpp"
#include "config/options.hpp"
#include "hooks/observe/observer.hpp"
#include "hooks/observe/start_stacks.hpp"
#include "hooks/state/serving.hpp"
#include "report/facts.hpp"
#include "report/file.hpp"
#include "report/holders.hpp"
#include "report/report.hpp"
#include "stats/device.hpp"
#include "trace/dealings.hpp"
#include "trace/live_set.hpp"
#include "trace/recorder.hpp"
#include "trace/stacks.hpp"

namespace cupool::hooks::observe {

extern const Listener trace_listener;

namespace {

namespace told = trace::told;
using std::string_view;

constexpr size_t kCalls = 0
#define CUPOOL_ROW(symbol, like) +1
#include "cuda/api.def"
    ;

// ---- The beginning.

// Texts that a trace names stay valid.
constinit report::Facts facts;

trace::About about_us() {
  facts = report::facts();
  return {static_cast<uint64_t>(facts.pid),
          facts.program,
          facts.host,
          facts.rank,
          kVersion,
          [](size_t i) { return cuda::name_of(static_cast<cuda::Call>(i)); },
          kCalls};
}

bool is_wanted() {
  const config::Options& options = config::options();
  const bool has_output = *options.trace != '\0' && options.trace_signal == config::StatsSignal::kNone;
  if (!has_output && !options.leaks && !options.check) return false;
  const trace::About about = about_us();
  start_stacks();
  trace::Settings settings;
  settings.most_bytes = options.trace_max.of(kUnlimited);
  settings.has_output = has_output;
  settings.remembers_frees = options.check;
  settings.stays = options.leaks || options.check;
  settings.kept_bytes = has_output ? options.trace_keep.of(kUnlimited) : 0;
  char path[PATH_MAX];
  report::NewFile made;
  report::expand(options.trace, facts, path, sizeof path);
  if (has_output && settings.kept_bytes == 0) {
    if (const char* const why = report::make_file(path, &made)) {
      log::line("cannot write the trace {}: {}; there is none", path, why);
      return false;
    }
    settings.path = made.path;
    settings.device = made.device;
    settings.inode = made.inode;
  }
  if (trace::begin(about, settings)) return true;
  log::line("the host has no memory for CUPOOL_TRACE_KEEP={}; there is no trace",
            print_size(options.trace_keep).text);
  return false;
}

// ---- Whose it is.

// The device of a context, remembered for the thread until contexts change.
uint64_t device_of(driver::Context context) {
  struct Known {
    driver::Context context;
    uint64_t turn;
    int device;
  };
  static constinit thread_local Known known{nullptr, 0, 0};
  const uint64_t turn = hooks::detail::context_turn.load(std::memory_order_acquire);
  if (known.context == context && known.turn == turn) return static_cast<uint64_t>(known.device);
  int device = 0;
  if (context != nullptr && !memory.device_of(context, &device)) {
    const OwnCall guard;
    if (memory.driver().device(&device) != driver::kSuccess) device = 0;
  }
  known = {context, turn, device};
  return static_cast<uint64_t>(device);
}

trace::Kind kind_of(Memory memory, Server server, stats::Service::By by) {
  switch (memory) {
    case Memory::kManaged:
      return trace::Kind::kManaged;
    case Memory::kStream:
      return trace::Kind::kStream;
    case Memory::kNode:
      return trace::Kind::kNode;
    case Memory::kPhysical:
      return trace::Kind::kPhysical;
    case Memory::kArray:
      return trace::Kind::kArray;
    case Memory::kPinned:
      return trace::Kind::kPinned;
    case Memory::kRegistered:
      return trace::Kind::kRegistered;
    case Memory::kImported:
      return trace::Kind::kImported;
    case Memory::kDevice:
      break;
  }
  if (server == Server::kDriver) return trace::Kind::kDriver;
  switch (by) {
    case stats::Service::By::kPool:
      return trace::Kind::kPool;
    case stats::Service::By::kWhole:
      return trace::Kind::kWhole;
    case stats::Service::By::kManaged:
      return trace::Kind::kManaged;
    case stats::Service::By::kSpilled:
      return trace::Kind::kSpilled;
    case stats::Service::By::kNative:
      return trace::Kind::kNative;
    case stats::Service::By::kDriver:
      break;
  }
  return trace::Kind::kDriver;
}
static_assert(static_cast<int>(stats::Service::How::kDriver) == static_cast<int>(trace::Sort::kDriver));

// ---- What others hold.

// What the driver says is free, and what the pool has of the rest. At most once a millisecond, unless the
// call is one of those that are known to take memory.
void ask_driver(cuda::Call call, bool is_known) {
  constexpr uint64_t kBetween = 1'000'000;
  static constinit std::atomic<uint64_t> asked{0};
  const uint64_t now = now_ns();
  uint64_t last = asked.load(std::memory_order_relaxed);
  if (!is_known && now - last < kBetween) return;
  const driver::Context context = current_context();
  if (context == nullptr || memory.order().is_capturing()) return;
  asked.store(now, std::memory_order_relaxed);
  size_t free = 0;
  size_t total = 0;
  {
    const OwnCall guard;
    if (cuda::real.cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS) return;
  }
  const uint64_t device = device_of(context);
  const uint64_t reserved = stats::device(static_cast<int>(device)).read().reserved_bytes;
  trace::record(told::Driver{free, reserved, static_cast<uint64_t>(call), total, device});
}

bool is_any(string_view name, std::initializer_list<string_view> beginnings) {
  for (const string_view one : beginnings) {
    if (name.starts_with(one)) return true;
  }
  return false;
}

// Calls that take device memory for something other than an allocation.
bool takes_memory(cuda::Call call) {
  return is_any(cuda::name_of(call),
                {"cuCtxCreate", "cuDevicePrimaryCtxRetain", "cuCtxSetLimit", "cuModuleLoad", "cuLibraryLoad",
                 "cuGraphInstantiate", "cuCtxEnablePeerAccess", "cuGreenCtxCreate", "cuStreamCreate",
                 "cuLinkComplete", "cuMemPoolCreate"});
}

// ---- What happened.

// So that a reader can compare: of one thread's events that is exact.
void compare_now_and_then(uint64_t device) {
  constexpr uint32_t kEvery = 1000;
  static constinit thread_local uint32_t events = 0;
  if (++events < kEvery) return;
  events = 0;
  const stats::DeviceSums sums = stats::device(static_cast<int>(device)).read();
  trace::record(told::Counters{sums.live_bytes, sums.asked_bytes, sums.reserved_bytes, device});
}

void allocated(const Allocated& what) {
  told::Allocated event{};
  event.address = what.address;
  event.asked = what.bytes;
  event.more = what.given > what.bytes ? what.given - what.bytes : 0;
  event.sort = static_cast<trace::Sort>(what.service.how);
  event.call = static_cast<uint64_t>(what.call);
  event.kind = kind_of(what.memory, what.server, what.service.by);
  event.stream = what.stream;
  event.context = reinterpret_cast<uint64_t>(what.context);
  event.device = device_of(what.context);
  event.stack = trace::take_stack_of_allocation(what.bytes);
  event.sample = trace::sample_period();
  trace::record(event);
  trace::note_order_turn();
  if (what.server == Server::kPool) compare_now_and_then(event.device);
  const bool is_hosts = what.memory == Memory::kPinned || what.memory == Memory::kRegistered;
  if (what.server == Server::kDriver && !is_hosts) ask_driver(what.call, false);
}

void freed(const Freed& what) {
  told::Freed event{};
  event.address = what.address;
  event.call = static_cast<uint64_t>(what.call);
  event.kind = kind_of(what.memory, what.server, stats::Service::By::kPool);
  event.stream = what.stream;
  event.stack = trace::take_stack_of_free(what.bytes);
  trace::record(event, what.began != 0 ? what.began : now_ns());
  trace::note_order_turn();
}

// What is kept in memory, now that memory has run out. A program may try again and again.
void write_kept() {
  constexpr uint64_t kBetween = 1'000'000'000;
  static constinit std::atomic<uint64_t> written{0};
  const uint64_t now = now_ns();
  uint64_t last = written.load(std::memory_order_relaxed);
  if ((last != 0 && now - last < kBetween) || !written.compare_exchange_strong(last, now)) return;
  report::dump_trace();
}

void failed(const Failed& what) {
  told::Failed event{};
  event.call = static_cast<uint64_t>(what.call);
  event.result = static_cast<uint64_t>(what.result);
  event.address = what.address;
  event.asked = what.bytes;
  event.stack = trace::take_stack();
  event.device = device_of(known_current_context());
  trace::record(event);
  if (what.is_free || what.result != CUDA_ERROR_OUT_OF_MEMORY) return;
  report::write_holders(event.device);
  write_kept();
}

void tell_wait(cuda::Call call, trace::Cause cause, uint64_t stream, int result, uint64_t ns) {
  told::Waited event{};
  event.ns = ns;
  event.call = static_cast<uint64_t>(call);
  event.stream = stream;
  event.cause = cause;
  event.stack = trace::take_stack_of_wait(ns >= kLong);
  event.result = static_cast<uint64_t>(result);
  trace::record(event);
}

void waited(const Waited& what) {
  tell_wait(what.call, trace::Cause::kSynchronisation, what.stream, what.result, what.ns);
}

void lasted(const Lasted& what) {
  tell_wait(what.call, what.is_free ? trace::Cause::kFree : trace::Cause::kAllocation, what.stream,
            what.result, what.ns);
}

trace::Cause cause_of(cuda::Call call) {
  const string_view name = cuda::name_of(call);
  if (is_any(name, {"cuModule", "cuLibrary", "cuFunc", "cuKernel", "cuLink"})) return trace::Cause::kLoad;
  if (is_any(name, {"cuGraph"})) return trace::Cause::kGraph;
  if (is_any(name, {"cuLaunch"})) return trace::Cause::kLaunch;
  return is_any(name, {"cuMemcpy", "cuMemset"}) ? trace::Cause::kCopy : trace::Cause::kOther;
}

// In which stream work is pending at an allocation, a free or a wait: once between two of them is enough.
void tell_work(uint64_t stream) {
  struct Told {
    uint64_t turn;
    uint64_t stream;
  };
  static constinit thread_local Told last{0, 0};
  const uint64_t turn = trace::order_turn();
  if (last.turn == turn && last.stream == stream) return;
  last = {turn, stream};
  const auto handle = reinterpret_cast<CUstream>(stream);
  const order::Timeline* const order = stream != 0 && memory.order().any() ? timeline_of(handle) : nullptr;
  trace::record(told::Worked{stream != 0 ? static_cast<uint64_t>(lane_of(handle)) : 0,
                             order != nullptr ? reinterpret_cast<uint64_t>(order->context()) : 0});
}

// Every copy in which the host may wait; of other work what took long: the first launch of a kernel, a full
// queue.
void submitted(const Submitted& what) {
  tell_work(what.stream);
  if (what.is_plain) return tell_wait(what.call, trace::Cause::kCopy, what.stream, what.result, what.ns);
  if (what.ns < kLong) return;
  tell_wait(what.call, cause_of(what.call), what.stream, what.result, what.ns);
  ask_driver(what.call, false);
}

void forwarded(const Forwarded& what) {
  if (what.ns >= kLong) tell_wait(what.call, cause_of(what.call), 0, what.result, what.ns);
  if (what.result == CUDA_SUCCESS && (what.ns >= kLong || takes_memory(what.call)))
    ask_driver(what.call, takes_memory(what.call));
}

void shared(const Shared& what) {
  trace::record(told::Shared{what.is_export ? trace::Sharing::kExport : trace::Sharing::kClose, what.address,
                             what.bytes});
}

void context_ended(const ContextEnded& what) {
  trace::record(told::ContextEnded{reinterpret_cast<uint64_t>(what.context), device_of(what.context)},
                what.began);
}

}  // namespace

constinit const Listener trace_listener{.is_wanted = is_wanted,
                                        .allocated = allocated,
                                        .freed = freed,
                                        .failed = failed,
                                        .submitted = submitted,
                                        .forwarded = forwarded,
                                        .waited = waited,
                                        .lasted = lasted,
                                        .shared = shared,
                                        .context_ended = context_ended};

bool begin_trace(const report::NewFile& place) {
  trace::Settings settings;
  settings.most_bytes = config::options().trace_max.of(kUnlimited);
  settings.path = place.path;
  settings.device = place.device;
  settings.inode = place.inode;
  start_stacks();
  if (!trace::begin(about_us(), settings)) return false;
  observer.listen(trace_listener, true);
  return true;
}

void end_trace() {
  // Another thread may be writing to it.
  constexpr int kMostTries = 100;
  for (int i = 0; i < kMostTries && !trace::end(); ++i) continue;
  if (trace::is_written()) trace::abandon();
  // What is live may still be wanted.
  if (!trace::is_on()) observer.listen(trace_listener, false);
}

namespace {

// What allocators say is live; taken under their locks, and in pages of its own.
void note_what_is_live(uint64_t now, trace::LiveSet* out) {
  memory.for_each_allocator([&](auto& one) {
    using One = std::remove_reference_t<decltype(one)>;
    told::Allocated note{};
    note.kind = trace::Kind::kPool;
    if constexpr (std::is_same_v<One, native::NativePool>) note.kind = trace::Kind::kNative;
    if constexpr (std::is_same_v<One, dedicated::DedicatedBlocks>)
      note.kind = one.is_host_visible() ? trace::Kind::kManaged
                  : one.is_on_device()  ? trace::Kind::kWhole
                                        : trace::Kind::kSpilled;
    static_cast<allocator::Allocator&>(one).for_each_live([&](const allocator::BlockInfo& block) {
      note.address = block.start;
      note.asked = block.bytes;
      note.more = block.given - std::min(block.given, block.bytes);
      note.context = reinterpret_cast<uint64_t>(block.context);
      out->allocated(now, 0, note);
    });
  });
}

void tell_live(const trace::LiveSet::Item& item, uint64_t time) {
  told::Live event{};
  event.address = item.address;
  event.asked = item.asked;
  event.more = item.more;
  event.call = kCalls;  // not known
  event.kind = static_cast<trace::Kind>(item.kind);
  event.context = item.context;
  int device = 0;
  if (memory.device_of(reinterpret_cast<driver::Context>(item.context), &device))
    event.device = static_cast<uint64_t>(device);
  trace::record(event, time);
}

// Gathers now and then: all of it does not fit a thread's ring.
class Pace {
 public:
  explicit Pace(int* kept) : kept_(kept) {}
  void step() {
    constexpr size_t kAtOnce = 1000;
    if (++told_ % kAtOnce == 0) trace::gather_now(kept_);
  }

 private:
  int* kept_;
  size_t told_ = 0;
};

constinit trace::LiveSet at_first;
CUPOOL_AFTER_FORK(at_first_after_fork, [] { at_first.clear(); });

}  // namespace

void tell_what_is_live(uint64_t began, int* kept) {
  Pace pace(kept);
  note_what_is_live(began, &at_first);
  at_first.for_each([&](const trace::LiveSet::Item& item) {
    tell_live(item, began);
    pace.step();
  });
}

void settle_what_is_live(uint64_t began, int* kept) {
  Pace pace(kept);
  trace::LiveSet now;
  note_what_is_live(began, &now);
  trace::gather_now(kept);
  at_first.for_each([&](const trace::LiveSet::Item& item) {
    if (now.holds(item.address, item.kind) || !trace::holds(item.address, item.kind)) return;
    told::Freed event{};
    event.address = item.address;
    event.call = kCalls;
    event.kind = static_cast<trace::Kind>(item.kind);
    trace::record(event, began + 1);
    pace.step();
  });
  trace::gather_now(kept);
  now.for_each([&](const trace::LiveSet::Item& item) {
    if (at_first.holds(item.address, item.kind) || trace::holds(item.address, item.kind)) return;
    tell_live(item, began + 1);
    pace.step();
  });
  now.clear();
  at_first.clear();
}

}  // namespace cupool::hooks::observe
