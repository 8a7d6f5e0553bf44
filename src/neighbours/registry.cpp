// See registry.hpp.
#include "neighbours/registry.hpp"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/preserve_errno.hpp"
#include "config/process.hpp"
#include "neighbours/layout.hpp"

namespace cupool::neighbours {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
// A process of another pid namespace cannot be looked up, so the age of its stamp decides. Its entry is shown
// while fresh (a reader requests fresh figures first), counted as one to ask for memory much longer, because
// an idle process publishes nothing, and free to overwrite after that.
constexpr uint64_t kShownFor = 5 * kSecond;
constexpr uint64_t kAskedFor = 600 * kSecond;
constexpr uint64_t kAskIsOld = 10 * kSecond;
// The longest time until a waiter notices that the file was replaced.
constexpr uint64_t kLongestSleep = 60 * kSecond;
constexpr uint64_t kTurn = kSecond / 20;
constexpr uint64_t kBurst = 8;
constexpr uint32_t kSlotsAtOnce = 16;  // read on the stack

uint64_t age(uint64_t stamp) {
  const uint64_t now = registry_time();
  // No process of this machine writes a stamp in the future.
  return stamp > now ? UINT64_MAX : now - stamp;
}

bool is_alive(const SlotRecord& record, Processes& processes, uint64_t foreign_for) {
  const Life life = processes.life_of(record.who);
  return life == Life::kLives || (life == Life::kUnknown && age(record.stamp) < foreign_for);
}

// Calls f(slot number, record) for every slot with a whole record until f returns false; false: the file
// cannot be read.
template <typename F>
bool each_record(const OpenFile& file, F&& f) {
  SlotRecord some[kSlotsAtOnce];
  for (uint32_t slot = 0; slot < Registry::kMostEntries; slot += kSlotsAtOnce) {
    if (!file.read(slot_at(slot), some, sizeof some)) return false;
    for (uint32_t i = 0; i < kSlotsAtOnce; ++i) {
      if (some[i].checksum == 0 || !is_whole(some[i], slot_at(slot + i))) continue;
      if (!f(slot + i, some[i])) return true;
    }
  }
  return true;
}

}  // namespace

uint64_t registry_time() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecond + static_cast<uint64_t>(now.tv_nsec);
}

bool Registry::open_checked(bool create) {
  const bool is_open = file_.connect(create);
  if (is_open) learn_identity();
  if (!is_open && create && !is_refusal_said_)
    log::detail("the neighbours' registry cannot be used: {}", file_.refusal());
  is_refusal_said_ = !is_open && (create || is_refusal_said_);
  return is_open;
}

bool Registry::open() {
  const PreserveErrno preserve;
  Guard hold(lock_);
  return open_checked(true);
}

bool Registry::join() {
  const PreserveErrno preserve;
  Guard hold(lock_);
  return open_checked(false);
}

bool Registry::is_open() { return file_.is_connected(); }

void Registry::learn_identity() {
  if (self_.token == 0) self_ = own_identity();
}

bool Registry::is_own_slot(const OpenFile& file, uint32_t slot) {
  SlotRecord there;
  return slot < kMostEntries && file.read(slot_at(slot), &there, sizeof there) && there.checksum != 0 &&
         is_whole(there, slot_at(slot)) && there.who.token == self_.token;
}

// pre: the file is locked.
uint32_t Registry::claim_slot(const OpenFile& file) {
  bool taken[kMostEntries] = {};
  const bool good = each_record(file, [&](uint32_t slot, const SlotRecord&) { return taken[slot] = true; });
  if (!good) return kNoSlot;
  for (uint32_t slot = 0; slot < kMostEntries; ++slot) {
    const bool chosen = std::find(slots_, slots_ + held_, slot) != slots_ + held_;
    if (!taken[slot] && !chosen) return slot;
  }
  const Identity self = self_;
  Processes processes(self, file_.owner());
  uint32_t dead = kNoSlot;
  each_record(file, [&](uint32_t slot, const SlotRecord& record) {
    if (!is_alive(record, processes, kAskedFor)) dead = slot;
    return dead == kNoSlot;
  });
  return dead;
}

void Registry::drop_slot(const OpenFile& file, size_t index) {
  const SlotRecord nothing = {};
  if (is_own_slot(file, slots_[index])) file.write(slot_at(slots_[index]), &nothing, sizeof nothing);
}

bool Registry::publish(const Figures* figures, size_t count) {
  const PreserveErrno preserve;
  Guard hold(lock_);
  const OpenFile file(file_);
  if (!file) return false;
  learn_identity();
  count = std::min(count, kMostDevices);
  for (; held_ > count; --held_) drop_slot(file, held_ - 1);
  bool locked = false;
  for (size_t i = 0; i < count; ++i) {
    SlotRecord record = {};
    record.stamp = registry_time();
    record.who = self_;
    record.figures = figures[i];
    strncpy(record.program, config::program(), sizeof record.program - 1);
    if (i >= held_ || !is_own_slot(file, slots_[i])) {
      locked = locked || file.try_exclusive();
      if (!locked) return false;
      const uint32_t slot = claim_slot(file);
      if (slot == kNoSlot) return false;
      slots_[i] = slot;
      held_ = std::max(held_, i + 1);
    }
    seal(&record, slot_at(slots_[i]));
    if (!file.write(slot_at(slots_[i]), &record, sizeof record)) return false;
  }
  return true;
}

// The process may end in a signal handler that has interrupted a holder of the lock; then the others find out
// that this process is gone.
void Registry::leave() {
  const PreserveErrno preserve;
  if (!lock_.try_lock_for_a_moment()) return;
  {
    const OpenFile file(file_);
    if (file) {
      for (; held_ > 0; --held_) drop_slot(file, held_ - 1);
    }
  }
  held_ = 0;
  lock_.unlock();
}

uint32_t Registry::bell() {
  const PreserveErrno preserve;
  Guard hold(lock_);
  const OpenFile file(file_);
  uint32_t value = 0;
  if (file) file.read(kBellAt, &value, sizeof value);
  return value;
}

// A leaky bucket: kBurst turns at once, then one every kTurn.
void Registry::spend_turn() {
  const uint64_t now = now_ns();
  turns_spent_until_ = std::max(turns_spent_until_, now) + kTurn;
  if (turns_spent_until_ > now + kBurst * kTurn) sleep_for(turns_spent_until_ - now - kBurst * kTurn);
}

bool Registry::wait(uint32_t seen, int64_t timeout_ns) {
  const PreserveErrno preserve;
  const uint64_t begin = now_ns();
  const uint64_t timeout = timeout_ns < 0 ? UINT64_MAX : static_cast<uint64_t>(timeout_ns);
  if (!is_open()) {
    sleep_for(std::min(timeout, kLongestSleep));
    return false;
  }
  for (;;) {
    const uint64_t over = now_ns() - begin;
    if (over >= timeout) return false;
    switch (file_.sleep(seen, std::min(timeout - over, kLongestSleep))) {
      case 0:
      case EAGAIN:
        spend_turn();
        return true;
      case EINTR:
        break;
      case ETIMEDOUT: {
        // Nothing more after the last sleep: a filter of system calls may have come meanwhile.
        if (now_ns() - begin >= timeout) return false;
        Guard hold(lock_);
        const OpenFile file(file_);
        if (!file) return false;
        break;
      }
      default: {
        Guard hold(lock_);
        file_.disconnect();
        return false;
      }
    }
  }
}

size_t Registry::asks_since(uint64_t* serial, Ask* out, size_t most) {
  const PreserveErrno preserve;
  Guard hold(lock_);
  const OpenFile file(file_);
  if (!file) return 0;
  learn_identity();
  Header header;
  AskRecord records[kAsks];
  if (!file.read(0, &header, sizeof header) || !file.read(kAsksAt, records, sizeof records)) return 0;
  // The registry was created anew, or its serial is damaged.
  if (header.serial < *serial) *serial = 0;
  size_t found = 0;
  for (uint64_t i = 0; i < kAsks; ++i) {
    const AskRecord& one = records[i];
    if (one.checksum == 0 || !is_whole(one, ask_at(i)) || one.serial <= *serial || one.serial > header.serial)
      continue;
    const bool named = one.pid == self_.pid && one.pid_namespace == self_.pid_namespace;
    if (one.from == self_.token || !(one.pid == -1 || named) || age(one.stamp) > kAskIsOld) continue;
    const Ask ask = {one.device, one.every_device != 0, one.pid,   one.bytes,
                     one.serial, Ask::What{one.what},   one.token, one.duration_ns};
    // Keeps the newest requests, sorted; the oldest are dropped if there are too many.
    size_t place = found;
    while (place > 0 && out[place - 1].serial < ask.serial) --place;
    if (place >= most) continue;
    found = std::min(found + 1, most);
    for (size_t j = found - 1; j > place; --j) out[j] = out[j - 1];
    out[place] = ask;
  }
  *serial = header.serial;
  return found;
}

bool Registry::ask(const Ask& ask) {
  const PreserveErrno preserve;
  Guard hold(lock_);
  const OpenFile file(file_);
  if (!file) return false;
  learn_identity();
  // Posts even without the lock: at worst two requests share a place and one of them is lost.
  file.try_exclusive();
  Header header;
  if (!file.read(0, &header, sizeof header)) return false;
  // A damaged serial must not block all later requests.
  if (header.serial >= UINT64_MAX / 2) header.serial = 0;
  ++header.serial;
  ++header.bell;
  AskRecord record = {};
  record.stamp = registry_time();
  record.from = self_.token;
  record.pid_namespace = self_.pid_namespace;
  record.pid = ask.pid;
  record.bytes = ask.bytes;
  record.serial = header.serial;
  record.every_device = ask.every_device ? 1 : 0;
  record.device = ask.device;
  record.what = static_cast<uint32_t>(ask.what);
  record.token = ask.token;
  record.duration_ns = ask.duration_ns;
  const uint64_t at = ask_at(record.serial);
  seal(&record, at);
  const bool posted =
      file.write(at, &record, sizeof record) && file.write(kBellAt, &header.bell, sizeof header - kBellAt);
  file_.wake_all();
  return posted;
}

size_t Registry::count_others(const DeviceId* device, uint64_t since) {
  const PreserveErrno preserve;
  Guard hold(lock_);
  const OpenFile file(file_);
  size_t count = 0;
  if (!file) return 0;
  learn_identity();
  const Identity self = self_;
  Processes processes(self, file_.owner());
  each_record(file, [&](uint32_t, const SlotRecord& record) {
    Entry entry;
    const bool is_meant = record.who.token != self.token && record.stamp <= since &&
                          (device == nullptr || record.figures.device == *device);
    if (is_meant && to_entry(record, self, &entry) && is_alive(record, processes, kAskedFor)) ++count;
    return true;
  });
  return count;
}

void Registry::visit(Visit visit, void* argument) {
  const PreserveErrno preserve;
  Guard hold(lock_);
  const OpenFile file(file_);
  if (!file) return;
  learn_identity();
  const Identity self = self_;
  Processes processes(self, file_.owner());
  each_record(file, [&](uint32_t, const SlotRecord& record) {
    Entry entry;
    if (to_entry(record, self, &entry) && is_alive(record, processes, kShownFor)) visit(entry, argument);
    return true;
  });
}

void Registry::forget_after_fork() {
  lock_.reset_after_fork();
  Guard hold(lock_);
  self_ = {};
  held_ = 0;
}

}  // namespace cupool::neighbours
