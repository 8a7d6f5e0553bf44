// A handshake between a fast side, taken all the time, and a rare side, of which one must see the other: the
// fast side stores that it is inside and loads whether it may be; the rare side stores that nobody may and
// loads whether anybody is. Both must store before they load. The fast side pays nothing for it: the rare
// side orders all threads by the kernel's membarrier. Where the system has none, the fast side issues a fence
// of its own. Which of both is decided once in a process. Owns no lock; rare sides of one fence exclude each
// other by a lock of theirs.
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace cupool {

class AsymmetricFence {
 public:
  constexpr AsymmetricFence() = default;
  AsymmetricFence(const AsymmetricFence&) = delete;
  AsymmetricFence& operator=(const AsymmetricFence&) = delete;

  // Spares the fast side its fence, where the system can. Until it is called, the fast side fails
  // try_enter().
  void prepare();

  // ---- The fast side, with a flag of its thread's own.

  // True: inside, until exit(). False: `inside` is set, and either exit() or enter_with_fence() follows.
  [[gnu::always_inline]] bool try_enter(std::atomic<bool>& inside) const {
    inside.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return word_.load(std::memory_order_acquire) == kOpen;
  }
  // False: closed, and not inside.
  bool enter_with_fence(std::atomic<bool>& inside) const;
  [[gnu::always_inline]] static void exit(std::atomic<bool>& inside) {
    inside.store(false, std::memory_order_release);
  }
  // The same by a plain store, if the rare side calls order_exits(): on aarch64 the acquire of the next
  // try_enter() would wait for a release, a tenth of the time of an allocation and its free.
  [[gnu::always_inline]] void exit_plainly(std::atomic<bool>& inside) const {
    if (kStoresInOrder || word_.load(std::memory_order_relaxed) != kOpen) {
      exit(inside);
    } else {
      tell_sanitizer_of_exit(inside);
      std::atomic_signal_fence(std::memory_order_release);
      inside.store(false, std::memory_order_relaxed);
    }
  }

  // ---- The rare side.

  // From now on each fast side is seen by its flag, or finds this closed. False: see order_all_threads().
  bool close() {
    begin_close();
    return end_close(order_all_threads());
  }
  // The same of several fences with one barrier: begin_close() of each, order_all_threads(), and end_close()
  // of each with its answer.
  void begin_close() { word_.fetch_or(kClosed, std::memory_order_seq_cst); }
  bool end_close(bool is_ordered) {
    if (!is_ordered) word_.fetch_or(kFenced, std::memory_order_relaxed);
    return is_ordered;
  }
  void open() { word_.fetch_and(static_cast<uint8_t>(~kClosed), std::memory_order_release); }
  // After it has found the flags of threads down that exit plainly: sees all that they did inside. A flag is
  // told to the thread sanitizer, which does not know that a membarrier orders.
  static void order_exits() {
    if (!kStoresInOrder) order_all_threads();
  }
  static void note_exit_seen([[maybe_unused]] std::atomic<bool>& inside) {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(&inside);
#endif
  }
  bool is_closed() const { return (word_.load(std::memory_order_acquire) & kClosed) != 0; }

  // ---- The same around words of the caller's.

  // On the fast side, between its store and its load.
  static void order_this_thread() {
    if (form_.load(std::memory_order_relaxed) == Form::kOneSided) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
  // On the rare side, between its store and its load. False: a filter of system calls took the membarrier
  // away after the process began to rely on it. Fast sides issue fences from now on, and those that were
  // under way have been given a millisecond: no architecture promises that their stores are visible by then,
  // but none keeps a store back for so long. A caller that can do without does.
  static bool order_all_threads();

 private:
  enum class Form : uint8_t { kUndecided, kOneSided, kBothSided, kLost };
  static constexpr uint8_t kOpen = 0;
  static constexpr uint8_t kClosed = 1;
  static constexpr uint8_t kFenced = 2;  // the fast side must issue a fence

  static Form decide();
  // The thread sanitizer does not know that a membarrier orders; all else of the protocol it sees as it is.
  static void tell_sanitizer_of_exit([[maybe_unused]] std::atomic<bool>& inside) {
#if defined(__SANITIZE_THREAD__)
    __tsan_release(&inside);
#endif
  }

#if defined(__x86_64__)
  static constexpr bool kStoresInOrder = true;
#else
  static constexpr bool kStoresInOrder = false;
#endif

  static inline constinit std::atomic<Form> form_{Form::kUndecided};
  std::atomic<uint8_t> word_{kFenced};
};

}  // namespace cupool
