// The registry: one file in shared memory through which the processes of one user see each other's figures
// and ask each other for idle memory. Nothing that is read there is trusted, and nothing there is reached by
// a load or store: a file that is truncated meanwhile would raise SIGBUS in the program. Contents go through
// pread and pwrite; one page is mapped, only as the address of the bell that waiters sleep on in the kernel.
// One lock, held for microseconds; only wait() sleeps. errno is preserved. Not async-signal-safe.
//
// How the processes use it: a publisher calls publish() after its figures changed and after every ask it
// answered, then sleeps in wait(). The process that asks sees from the stamps which entries have answered.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/lock.hpp"
#include "neighbours/file.hpp"
#include "neighbours/identity.hpp"

namespace cupool::neighbours {

struct DeviceId {
  unsigned char bytes[16];  // the driver's UUID: CUDA_VISIBLE_DEVICES renumbers the rest
  bool operator==(const DeviceId&) const = default;
};

struct Figures {
  DeviceId device;
  int64_t ordinal;                        // as the process numbers it
  uint64_t live, cached, reserved, peak;  // bytes of device memory
  uint64_t reused, first_uses, waits_avoided;
  uint64_t host;      // bytes of host memory that blocks spilled to
  uint64_t capacity;  // bytes of the device; 0: not known
  uint64_t limit;     // CUPOOL_LIMIT in bytes; kUnlimited: none
};

// A request, mostly for idle memory. `bytes`: how much is needed; 0: none, only publish fresh figures;
// kEverythingIdle: all that is idle.
inline constexpr uint64_t kEverythingIdle = UINT64_MAX;
struct Ask {
  enum class What : uint32_t { kMemory, kTrace, kEndTrace, kTellTrace };

  DeviceId device;
  bool every_device;
  int64_t pid;  // in the asking process's pid namespace; -1: every process
  uint64_t bytes;
  uint64_t serial;  // given by the registry
  // The rest is about the trace of the process that `pid` names, and then no memory is asked for: to record
  // one for so long, to end that, or to say which it records already. `token` names the file of the answer.
  What what = What::kMemory;
  uint64_t token = 0;
  uint64_t duration_ns = 0;
};

// One process on one device, as another process sees it.
struct Entry {
  int64_t pid;
  bool same_namespace;  // else `pid` is that of another pid namespace
  uint64_t pid_namespace;
  uint64_t process;  // the same number for all entries of one process, and for no other process
  uint64_t stamp;    // when it was published, in nanoseconds of registry_time()
  char program[64];  // printable
  Figures figures;
};

// The clock of stamps: the same for every process on this machine.
uint64_t registry_time();

class Registry {
 public:
  static constexpr size_t kMostDevices = 64;  // entries of one process
  static constexpr size_t kMostEntries = 1024;

  // `directory` must outlive the registry. `user`: whose registry; another user's can be read by root.
  constexpr explicit Registry(const char* directory = "/dev/shm") : file_(directory) {}
  constexpr Registry(const char* directory, uint32_t user) : file_(directory, user) {}
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Creates or joins the registry. False: it is missing or unusable, as refusal() says; may be called again
  // later. The first refusal is logged, then the first one after each success: callers try again and again.
  bool open();
  // Joins only a registry that exists already.
  bool join();
  bool is_open();
  // Why the last open() or join() failed; a constant text.
  const char* refusal() const { return file_.refusal(); }

  // Replaces this process's entries. False: not all of them are in the registry now.
  bool publish(const Figures* figures, size_t count);
  // Removes this process's entries.
  void leave();

  // The present value of the bell, for wait().
  uint32_t bell();
  // Sleeps until the bell is no longer at `seen`. False: the time is over, or the registry was lost, as
  // is_open() says. Without a registry it sleeps for the whole time, for a minute if the time is unlimited.
  // However often the bell is rung, it returns at most 20 times a second, after a burst of a few.
  bool wait(uint32_t seen, int64_t timeout_ns);
  // Ends a wait() of this process, and of others, which look and wait again.
  void end_wait() { file_.wake_all(); }

  // Reads the requests of other processes to this one that are newer than *serial, newest first, and advances
  // *serial, which starts at 0. The caller compares the device. Requests older than some seconds are left
  // out.
  size_t asks_since(uint64_t* serial, Ask* out, size_t most);
  // Posts a request and rings the bell. False: it was not posted.
  bool ask(const Ask& ask);

  // Counts the entries of other living processes on a device (null: on any) that were not renewed since a
  // moment of registry_time(): their figures may be stale, for the process may have just freed everything.
  size_t count_others(const DeviceId* device, uint64_t since);

  // Calls f(const Entry&) for the entries of all living processes, this one too, in no order. f must not call
  // the registry.
  template <typename F>
  void for_each(F&& f) {
    visit([](const Entry& entry, void* argument) { (*static_cast<F*>(argument))(entry); }, &f);
  }

  // In a fork child, before any other call: the entries, the lock and an open file are the parent's.
  void forget_after_fork();

 private:
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  using Visit = void (*)(const Entry& entry, void* argument);
  void visit(Visit visit, void* argument);
  bool open_checked(bool create) CUPOOL_REQUIRES(lock_);
  void learn_identity() CUPOOL_REQUIRES(lock_);
  void drop_slot(const OpenFile& file, size_t index) CUPOOL_REQUIRES(lock_);
  uint32_t claim_slot(const OpenFile& file) CUPOOL_REQUIRES(lock_);
  bool is_own_slot(const OpenFile& file, uint32_t slot) CUPOOL_REQUIRES(lock_);
  void spend_turn();

  Lock lock_{Rank::kRegistry};
  RegistryFile file_;
  Identity self_ CUPOOL_GUARDED_BY(lock_){};  // token 0: not known yet
  uint32_t slots_[kMostDevices] CUPOOL_GUARDED_BY(lock_){};
  size_t held_ CUPOOL_GUARDED_BY(lock_) = 0;  // of slots_
  bool is_refusal_said_ CUPOOL_GUARDED_BY(lock_) = false;
  // Of the one thread that waits.
  uint64_t turns_spent_until_ = 0;
};

}  // namespace cupool::neighbours
