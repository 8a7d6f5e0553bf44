// What is loaded into the process, and was: the program and its libraries, where they lie, and which map of
// the process has them. A map is what was loaded at one time; it gets a new number when that has changed. The
// loader is asked with no lock of ours held, never by a thread that is inside of it (loading.hpp). One lock,
// for the list.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/lock.hpp"

namespace cupool::trace {

class Modules {
 public:
  struct Module {
    uint64_t map;   // the first one that has it
    uint64_t gone;  // the first one after it; 0: it is still there
    uint64_t begin;
    uint64_t end;
    uint64_t bias;
    const char* path;  // "": the program itself, where its path is not known
    uint8_t build_id[32];
    uint8_t build_id_bytes;
    bool is_told;
    bool is_gone_told;
  };
  static constexpr size_t kMost = 1 << 14;

  // The present map, looked at now. Not for a thread that is inside the loader.
  uint32_t look() CUPOOL_EXCLUDES(lock_);
  // The last one that was looked at.
  uint32_t map() const { return map_.load(std::memory_order_acquire); }
  // How often something was loaded where something else had been. Until it grows an address has one meaning.
  uint32_t reuses() const { return reuses_.load(std::memory_order_acquire); }

  // Calls tell_module(number, module) for each that was not told, tell_gone(number, map) for each that has
  // gone since; false ends it before that one. False: the list is busy, or one of them said so.
  template <typename TellModule, typename TellGone>
  bool tell_new(TellModule&& tell_module, TellGone&& tell_gone) CUPOOL_EXCLUDES(lock_) {
    if (!lock_.try_lock_for_a_moment()) return false;
    bool all = true;
    for (size_t i = 0; i < count_ && all; ++i) {
      Module& one = modules_[i];
      if (!one.is_told) one.is_told = all = tell_module(i + 1, one);
      if (one.is_told && one.gone != 0 && !one.is_gone_told)
        one.is_gone_told = all = tell_gone(i + 1, one.gone);
    }
    lock_.unlock();
    return all;
  }
  void forget_told() CUPOOL_EXCLUDES(lock_);
  // The module that lies, or lay, there in that map: copies it. False: none is known.
  bool find(uint64_t address, uint32_t map, Module* out) CUPOOL_EXCLUDES(lock_);
  // Whether anything that is loaded has this in its path.
  bool has_path_with(std::string_view part) CUPOOL_EXCLUDES(lock_);
  void forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS { lock_.reset_after_fork(); }

 private:
  struct Seen;
  static bool see(Seen* seen);
  void publish(const Seen& seen) CUPOOL_REQUIRES(lock_);
  const char* keep(const char* path) CUPOOL_REQUIRES(lock_);

  Lock lock_{Rank::kModules};
  Module* modules_ CUPOOL_GUARDED_BY(lock_) = nullptr;
  size_t count_ CUPOOL_GUARDED_BY(lock_) = 0;
  static constexpr size_t kTextPages = 256 << 10;
  char* text_ CUPOOL_GUARDED_BY(lock_) = nullptr;
  size_t text_room_ CUPOOL_GUARDED_BY(lock_) = 0;
  std::atomic<uint64_t> changes_{0};  // of the loader's, at the last look
  std::atomic<uint32_t> map_{0};
  std::atomic<uint32_t> reuses_{0};
};

}  // namespace cupool::trace
