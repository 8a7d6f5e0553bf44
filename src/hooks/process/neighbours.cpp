// See neighbours.hpp. The registry has a lock of its own; `known` is the background thread's, `answered`,
// `heard` and `shown` are the file thread's.
#include "hooks/process/neighbours.hpp"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "base/after_fork.hpp"
#include "base/clock.hpp"
#include "base/lock.hpp"
#include "base/own_call.hpp"
#include "base/own_files.hpp"
#include "base/own_thread.hpp"
#include "base/preserve_errno.hpp"
#include "config/options.hpp"
#include "cuda/real.hpp"
#include "hooks/process/background_thread.hpp"
#include "hooks/state/serving.hpp"
#include "neighbours/registry.hpp"
#include "report/figures.hpp"

namespace cupool::hooks {
namespace {

using neighbours::Ask;
using neighbours::DeviceId;
using neighbours::Figures;
using neighbours::Registry;

constexpr uint64_t kMillisecond = 1'000'000;
// How often and how long we retry a release while work is still pending. A process that asks waits a little
// longer than all retries (kPatience) for the first sign of an answer.
constexpr int kTries = 8;
constexpr uint64_t kBetweenTries = 5 * kMillisecond;
constexpr uint64_t kBetweenLooks = 2 * kMillisecond;
constexpr uint64_t kPatience = 60 * kMillisecond;
constexpr uint64_t kMostPatience = 1000 * kMillisecond;
// Back off for eight times the duration of a request in vain. Not for ever: another process may free memory
// at any time.
constexpr uint64_t kSilence = 8;

constinit std::atomic<Registry*> the_registry{nullptr};
constinit std::atomic<uint64_t> silent_until{0};
constinit std::atomic<uint64_t> came_back_at{0};
constinit uint64_t answered = 0;  // serial of the last request
constinit uint32_t heard = 0;     // the bell at that time
struct Known {
  bool is_known;
  DeviceId id;
  uint64_t capacity;
};
constinit Known known[stats::kMostDevices] = {};
constinit Figures shown[Registry::kMostDevices] = {};
constinit size_t shown_count = 0;
// What the file thread sleeps on without a registry.
constinit std::atomic<uint32_t> alone_bell{0};

void forget_neighbours() {
  if (Registry* const registry = the_registry.load(std::memory_order_relaxed)) registry->forget_after_fork();
  silent_until.store(0, std::memory_order_relaxed);
  came_back_at.store(0, std::memory_order_relaxed);
  answered = 0;
  shown_count = 0;
}
CUPOOL_AFTER_FORK(forget_neighbours_after_fork, &forget_neighbours);

Registry* find_registry() {
  if (!config::options().neighbours) return nullptr;
  Registry* registry = the_registry.load(std::memory_order_acquire);
  if (registry != nullptr) return registry;
  auto* const made = new (std::nothrow) Registry(config::options().neighbours_dir);
  if (the_registry.compare_exchange_strong(registry, made)) return made;
  delete made;
  return registry;
}

bool find_id(int device, DeviceId* out) {
  const OwnCall guard;
  CUuuid uuid;
  CUdevice handle = 0;
  if (cuda::real.cuDeviceGet(&handle, device) != CUDA_SUCCESS ||
      cuda::real.cuDeviceGetUuid_v2(&uuid, handle) != CUDA_SUCCESS) {
    return false;
  }
  static_assert(sizeof *out == sizeof uuid);
  memcpy(out, &uuid, sizeof *out);
  return true;
}

uint64_t capacity_of(int device) {
  const OwnCall guard;
  CUdevice handle = 0;
  size_t bytes = 0;
  const bool is_told = cuda::real.cuDeviceGet(&handle, device) == CUDA_SUCCESS &&
                       cuda::real.cuDeviceTotalMem_v2(&bytes, handle) == CUDA_SUCCESS;
  return is_told ? bytes : 0;
}

// Calls f(number, id) for the devices in use, whose ids never change.
template <typename F>
void for_each_device(F&& f) {
  for (int device = 0; device < stats::kMostDevices; ++device) {
    Known& one = known[device];
    if (!stats::device(device).is_used()) continue;
    if (!one.is_known && find_id(device, &one.id)) {
      one.capacity = capacity_of(device);
      one.is_known = true;
    }
    if (one.is_known) f(device, one.id);
  }
}

bool has_pending_work() {
  bool any = false;
  memory.order().for_each([&](const order::Timeline& timeline) { any = any || !timeline.is_idle(); });
  return any;
}

// Requests add up: processes that ask at the same time need the sum.
uint64_t add(uint64_t one, uint64_t other) {
  return one + std::min(other, neighbours::kEverythingIdle - one);
}

void release_for(int device, uint64_t bytes, bool (*goes_on)()) {
  uint64_t released = 0;
  for (int i = 0; i < kTries && goes_on(); ++i) {
    released += memory.idle().release_for_others(device, bytes - released, goes_on);
    if (released >= bytes || !has_pending_work()) return;
    sleep_for(kBetweenTries);
  }
}

// The free memory of a device, as the driver reports it. False: unknown, because the driver reports it only
// for the device of the current context.
bool read_free(int device, size_t* out) {
  int current = 0;
  size_t total = 0;
  if (memory.driver().device(&current) != driver::kSuccess) return false;
  return (device == memory::kEveryDevice || device == current) &&
         memory.driver().memory(out, &total) == driver::kSuccess;
}

// Whether memory came back to another thread recently, perhaps after this thread was refused.
bool came_back_lately(uint64_t now) {
  const uint64_t at = came_back_at.load(std::memory_order_relaxed);
  return at != 0 && (at > now || now - at < kMostPatience);
}

// A request to the neighbours. What it reads and writes in the registry, a thread does that has own files:
// the calling one is the program's.
class Request {
 public:
  Request(Registry& registry, const Ask& ask) : registry_(registry), ask_(ask) {
    if (!start_own_thread(run, this, "cupool-asks", &thread_)) return;
    is_started_ = true;
    for (int turn = 0; waiting_.load(std::memory_order_acquire) == kUnknown; ++turn)
      Lock::wait_a_little(turn);
  }
  ~Request() {
    is_over_.store(true, std::memory_order_release);
    if (is_started_) pthread_join(thread_, nullptr);
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Whether there is a registry to ask in.
  bool has_asked() const { return has_asked_; }
  // How many processes have not answered yet.
  size_t waiting() const { return is_started_ ? waiting_.load(std::memory_order_acquire) : 0; }

 private:
  static constexpr size_t kUnknown = SIZE_MAX;

  static ThreadEnds run(void* self) {
    static_cast<Request*>(self)->ask();
    return ThreadEnds::kPlainly;
  }

  void ask() {
    has_asked_ = take_own_files() && registry_.join();
    const uint64_t asked = neighbours::registry_time();
    const DeviceId* const where = ask_.every_device ? nullptr : &ask_.device;
    size_t waiting = has_asked_ ? registry_.count_others(where, asked) : 0;
    if (waiting != 0 && !registry_.ask(ask_)) waiting = 0;
    waiting_.store(waiting, std::memory_order_release);
    while (waiting != 0 && !is_over_.load(std::memory_order_acquire)) {
      sleep_for(kBetweenLooks);
      waiting = registry_.count_others(where, asked);
      waiting_.store(waiting, std::memory_order_release);
    }
  }

  Registry& registry_;
  const Ask ask_;
  pthread_t thread_ = {};
  bool is_started_ = false;
  bool has_asked_ = false;
  std::atomic<size_t> waiting_{kUnknown};
  std::atomic<bool> is_over_{false};
};

}  // namespace

void meet_neighbours() {
  Registry* const registry = find_registry();
  if (registry == nullptr || registry->is_open() || !registry->open()) return;
  // Skip requests from before this process joined.
  Ask old;
  registry->asks_since(&answered, &old, 1);
}

void wait_for_neighbours(bool hears, uint64_t ns) {
  Registry* const registry = hears ? find_registry() : nullptr;
  if (registry == nullptr || !registry->is_open()) {
    const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    syscall(SYS_futex, &alone_bell, FUTEX_WAIT_PRIVATE, alone_bell.load(), &time, nullptr, 0);
    return;
  }
  registry->wait(heard, static_cast<int64_t>(ns));
}

void end_wait_for_neighbours() {
  alone_bell.fetch_add(1);
  syscall(SYS_futex, &alone_bell, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  if (Registry* const registry = the_registry.load(std::memory_order_acquire)) registry->end_wait();
}

size_t hear_neighbours(Ask* out, size_t most) {
  Registry* const registry = find_registry();
  if (registry == nullptr || !registry->is_open()) return 0;
  // Read the bell before the requests: a request that comes later rings it and ends the next wait.
  heard = registry->bell();
  return registry->asks_since(&answered, out, most);
}

void answer_neighbours(const Ask* asks, size_t count, bool (*goes_on)()) {
  if (count == 0) return;
  for_each_device([&](int device, const DeviceId& id) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      if (asks[i].every_device || asks[i].device == id) bytes = add(bytes, asks[i].bytes);
    }
    if (bytes != 0) release_for(device, bytes, goes_on);
  });
}

void note_devices() {
  for_each_device(
      [](int device, const DeviceId& id) { report::note_device(device, id, known[device].capacity); });
}

void show_to_neighbours(const Figures* now, size_t count, bool anew) {
  Registry* const registry = find_registry();
  if (registry == nullptr || !registry->is_open()) return;
  if (!anew && count == shown_count && memcmp(now, shown, count * sizeof *now) == 0) return;
  // Shared memory may be full: then once more in the next round.
  if (!registry->publish(now, count)) return;
  memcpy(shown, now, count * sizeof *now);
  shown_count = count;
}

void leave_neighbours() {
  if (Registry* const registry = the_registry.load(std::memory_order_acquire)) registry->leave();
  shown_count = 0;
}

bool ask_neighbours(int device, uint64_t bytes) {
  const uint64_t begin = now_ns();
  // Still backing off after a request in vain; or a capture, which a wait would break.
  if (begin < silent_until.load(std::memory_order_relaxed) || memory.order().is_capturing()) return false;
  const PreserveErrno preserve;
  Registry* const registry = find_registry();
  const bool everywhere = device == memory::kEveryDevice;
  const uint64_t wanted = bytes == 0 ? neighbours::kEverythingIdle : bytes;
  DeviceId id = {};
  if (registry == nullptr || !may_start_threads() || !(everywhere || find_id(device, &id))) return false;
  size_t before = 0;
  const bool is_known = read_free(device, &before);
  size_t free = before;
  Request request(*registry, {id, everywhere, -1, wanted, 0});
  size_t waiting = request.waiting();
  for (uint64_t now = begin, changed = begin; waiting != 0 && (free <= before || free < wanted);
       now = now_ns()) {
    if (now - changed >= kPatience || now - begin >= kMostPatience) break;
    sleep_for(kBetweenLooks);
    // Count the answers before reading the free memory, so that what they released is included.
    const size_t still = request.waiting();
    size_t seen = free;
    if (is_known && !read_free(device, &seen)) break;
    if (seen > free || still < waiting) changed = now_ns();
    free = seen;
    waiting = still;
  }
  const uint64_t end = now_ns();
  if (free > before) came_back_at.store(end, std::memory_order_relaxed);
  // Ask the driver once more if the free memory is unknown, or another thread may have taken what came back.
  if (request.has_asked() && (!is_known || free > before || free >= wanted || came_back_lately(begin)))
    return true;
  silent_until.store(end + kSilence * (end - begin), std::memory_order_relaxed);
  return false;
}

}  // namespace cupool::hooks
