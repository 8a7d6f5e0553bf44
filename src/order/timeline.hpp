// Decides when freed memory of one context may be handed out again. One timeline per context, because the
// driver's free waits only for work of the memory's own context; docs/order-proofs.md argues every rule and
// race. Owns the epochs, the streams in use, and the seals that hand-outs lean on. State changes under
// `lock_`, except `lean_`; the first cache line is read without it. `lock_` is held across record and query
// of an event (the model needs these steps atomic), never across a call of the application, or a wait on the
// device or the host.
#pragma once

#include <atomic>

#include "base/lock.hpp"
#include "base/reentry.hpp"
#include "driver/driver.hpp"
#include "order/capture_gate.hpp"
#include "order/contexts.hpp"
#include "order/demands.hpp"
#include "order/graph_launches.hpp"
#include "order/lane.hpp"
#include "order/leant_blocks.hpp"
#include "order/rules.hpp"
#include "order/seals.hpp"
#include "order/turns.hpp"
#include "order/waited_lanes.hpp"
#include "stats/device.hpp"
#include "trace/events.hpp"

namespace cupool::order {

// What it takes to hand out a block whose work is sealed but not done.
enum class Reuse {
  kLean,       // each stream that may use it waits before its next submission
  kOrder,      // not all submissions are seen: the whole context waits for the seal
  kCompleted,  // not possible: only blocks whose work is done are handed out
};

// How far a search for a block goes.
enum class Reach {
  kCheap,  // blocks that make no overlapping stream wait
  kOwn,    // blocks of the lane's own: all their old work is in it
  kAll,    // blocks that streams may have to wait for, too
};
// The limit of a search while no work is pending.
inline constexpr Epoch kAnyStamp = ~Epoch{0};

// A reason for Reuse::kCompleted.
inline constexpr char kGates[] = "several threads submit work, and streams wait for values in memory";

class Timeline {
 public:
  Timeline(driver::Driver& driver, CaptureGate& gate, Contexts& contexts)
      : driver_(driver), gate_(gate), contexts_(contexts) {}
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // ---- Hot path: no lock, no call.

  // The stamp of a block that is freed now. pre: the application's last launch on it has returned.
  Epoch open() const { return open_.load(std::memory_order_acquire); }
  // Whether no work is pending: any block may be handed out. Read it after the block was taken from wherever
  // it lay: what was noted before the free is then seen.
  bool is_idle() const { return idle_.load(std::memory_order_acquire); }
  // The highest stamp whose work is done, so that the host or another device may write there too.
  Epoch completed() const { return kFence ? completed_.load(std::memory_order_acquire) : kAnyStamp; }
  // The same, and no limit while no work is pending.
  Epoch done() const { return is_idle() ? kAnyStamp : completed(); }
  // The highest stamp that may be handed out without making overlapping streams wait: its work is done, or
  // ordered before all later work anyway. Read it, too, under the lock of the list that holds the block.
  Epoch cheap() const {
    if (is_idle() || !kFence) return kAnyStamp;
    return one_lane_.load(std::memory_order_acquire) ? sealed_.load(std::memory_order_acquire) : ordered();
  }
  // The highest stamp that may be handed out at all, after reach().
  Epoch reachable() const {
    if (is_idle() || !kFence) return kAnyStamp;
    return reuse() == Reuse::kLean ? sealed_.load(std::memory_order_acquire) : ordered();
  }
  // The newest epoch with a seal that a free made.
  Epoch sealed() const { return sealed_.load(std::memory_order_acquire); }
  // Whether work of the context that is submitted now waits for work of an old life.
  bool is_held_up() const { return ordered() > done(); }
  Epoch limit(Reach reach) const { return reach == Reach::kCheap ? cheap() : reachable(); }
  // Whether work is pending in several lanes, so that cheap() and reachable() differ.
  bool is_spread() const { return !is_idle() && !one_lane_.load(std::memory_order_acquire); }
  // Before handing out a block that cheap() or reachable() allowed: orders submissions that may use it after
  // its old work, which is all in lane `sole` if one is given. `stamp` is 0 if no work was pending.
  void lean_on(Epoch stamp, driver::Address block, LaneName sole = LaneName::kNone) {
    if (stamp > ordered_everywhere_.load(std::memory_order_acquire) && kFence)
      lean_on_seal(stamp, block, sole);
  }
  const Turns& turns() const { return turns_; }
  // Before handing out a block that a lane other than the current turn's is expected to use.
  void leave_turn_open();
  // The only lane given work since a block was taken in turn `taken`, if all work is seen.
  LaneName sole_since(uint64_t taken) const {
    return reuse() == Reuse::kLean ? turns_.sole_since(taken) : LaneName::kNone;
  }
  // The same for a block that is given back now.
  LaneName sole_at_last(uint64_t taken) {
    const LaneName sole = sole_since(taken);
    if (sole != LaneName::kNone) turns_.note_chance();
    return sole;
  }

  // Around every call that submits work to `lane`, which is `stream`. False: the work must not be submitted,
  // because it cannot be ordered after older work on the same memory. Only a failed driver causes that.
  [[nodiscard]] bool before_submit(Lane lane, driver::Stream stream) {
    return !is_leaning() || may_submit(lane) || wait_for_lean(lane, stream);
  }
  // What a block that was handed out leans on: its old work is done once this epoch is.
  Epoch leant_on_by(driver::Address block);
  // Before a stream of `lane` in another context is given work on blocks of this one that lean on `asked`: it
  // waits for their old work. False as above.
  [[nodiscard]] bool before_visit(Lane lane, driver::Stream stream, driver::Context context, Epoch asked);
  // Whether nothing has to be done first.
  [[gnu::noinline]] bool may_submit(Lane lane) const;
  // Whether hand-outs lean on unfinished work: a programmatic launch, which may start before its predecessor
  // ends, would jump over the stream's wait.
  bool is_leaning() const {
    return demand_.load(std::memory_order_acquire) != 0 ||
           lean_.load(std::memory_order_acquire) > completed_.load(std::memory_order_acquire);
  }
  // The driver's answer to the failed wait: the submission would have got the same.
  driver::Status refusal() const { return refusal_.load(std::memory_order_relaxed); }
  [[gnu::always_inline]] void after_submit(Lane lane) {
    const bool is_new_here = Reentry::note_work(life_.load(std::memory_order_relaxed));
    const Lane quiet = quiet_.load(std::memory_order_acquire);
    if ((quiet != lane && quiet != Lane::kMany) || (is_new_here && !has_several_threads())) note(lane);
  }

  // ---- Inside a free, in which the driver would have waited for all work of the context.

  // A free of more bytes than this matters: see below.
  static constexpr uint64_t kLittle = 1 << 20;
  // Closes the open epoch: at once if nothing was submitted since the last seal, else by an event, or by a
  // wait if the driver has no context events. If another thread holds the lock, gives up, for a later free
  // seals as well; if it `matters`, because this may be the last free, only if the lock is held for long.
  void seal_in_free(bool matters = false);
  // The same, and waits on the host until all of that work is done, as the driver's free does.
  void wait_in_free();
  // Inside a stream-ordered free, in which the driver waits for nothing: nothing may lean on this seal, it
  // only tells when the work is done.
  void seal_for_completion();
  // At the end of a free that has waited for nothing: counts it as one that avoided a wait, once it is known
  // that work was pending then, if some was submitted since the last free or wait.
  void note_unwaited_free(stats::Device& device);
  // Sees to it that there are events for that: called before memory is asked for, since the driver makes
  // neither while a launch stands in a full queue, and such a free does not wait for that. pre: the context
  // does not end meanwhile.
  void keep_events();
  bool has_context_events() const { return driver_.has_context_events(); }
  // A stream that no work goes to, for memory that goes back; null: none was made.
  driver::Stream spare_stream();
  // Makes it, if there is none; false: the driver makes none. pre: the thread's own context, or an idle one.
  bool make_spare_stream();
  // For a thread of another context, which must wait for nothing here: whether there is one. If not, the next
  // growth or free here makes it.
  bool ask_for_spare_stream();

  // ---- Slow path of an allocation.

  // Polls which seals are done. Gives up at once if another thread holds the lock.
  void advance();
  // The same for a thread of another context: makes no call of the driver that may stand.
  void advance_from_outside();
  // The same if more blocks may be handed out then. In one lane, sealed blocks are handed out anyway, and the
  // others not before all work is done.
  void advance_for_reuse() {
    const bool gains =
        !one_lane_.load(std::memory_order_acquire) || noted_.load(std::memory_order_acquire) == Lane::kNone;
    if (gains) advance();
  }
  // Whether all pending work was submitted before this thread's last free, so that a release waits for
  // nothing that the free would not have waited for. pre: no submission is under way.
  bool is_all_before_last_free();
  // Whether this thread is the only one seen to submit work, or to free.
  bool is_only_thread();
  // Makes it known some time later whether all work submitted so far is done, also if the program frees
  // nothing more.
  void expect_completion();
  // For one thread that looks now and then. Quiet: at the last two looks nothing was pending, and no work
  // began in between.
  void look_if_quiet();
  bool was_quiet() const { return was_quiet_.load(std::memory_order_relaxed) && is_idle(); }
  // Makes sealed blocks reachable: for kOrder the context has to wait on the device. False: there is nothing
  // to gain.
  bool reach();
  // Waits on the host until the work of all epochs up to one that a free has sealed is done. False during a
  // capture or after an error.
  bool wait_for(Epoch epoch);
  // The highest stamp that hand-outs so far lean on: the old work of a block that is held now is done with
  // it.
  Epoch newest_leant_on();
  // Before a block leaves the process or stream order: its old work is done when this returns.
  bool wait_for_leant();
  // The same for all that frees have sealed: the driver's frees would have waited for it.
  bool wait_for_frees();
  // The same for a request of another context: for frees up to epoch `own`, which the calling thread made, as
  // long as it takes, because they would have waited in this very thread; for all others so long at most.
  bool wait_for_frees_elsewhere(Epoch own, uint64_t others_ns);
  // The same for all seals so far, of frees or not, but not for longer.
  bool wait_for_seals(uint64_t most_ns);
  // Waits on the host for all work of the context. False during a capture or after an error.
  bool wait_for_all();

  // ---- Calls of the application.

  // The program's own waits complete epochs: call begin before, end after. `lane` kMany means the whole
  // context. begin returns 0 when the wait would prove nothing. `told_as`: kOwnWaitBegins of waits in calls
  // of the pool's. A query is a wait that may find nothing done.
  enum class Asks { kWait, kQuery };
  Epoch begin_wait(Lane lane, trace::Ordering told_as = trace::Ordering::kWaitBegins,
                   Asks asks = Asks::kWait);
  void end_wait(Epoch epoch, bool succeeded);
  // Before the driver's call: the handle can be reused for another stream.
  void destroy_stream(Lane lane);

  // ---- Untracked work, permanent.

  // Work may be submitted unseen. The whole context waits for what hand-outs already lean on.
  void expect_untracked_work();
  // From now on nothing is handed out before its old work is done. Earlier hand-outs that lean stay ordered
  // by the streams' waits.
  void use_completed_only();
  // The same because the host or another device may touch any memory at any time: waits until nothing leans.
  void expect_direct_access();
  // There is a second context, whose streams may copy from and to blocks of this one: from now on it is
  // remembered what each block leans on, so that a copy waits for no other. And it may be refused what lies
  // free here: the next growth or free makes the stream by which that goes back.
  void expect_visits();
  // After a capture: makes the context wait for what it could not be made to wait for meanwhile.
  void order_owed();
  Reuse reuse() const { return reuse_.load(std::memory_order_seq_cst); }

  bool is_capturing() const { return gate_.is_capturing(); }
  CaptureGate& gate() { return gate_; }
  // How many lanes take turns; 0 until lanes had to wait for each other more than a few times.
  size_t lanes_in_turns() const { return lanes_.load(std::memory_order_relaxed); }
  // One would have had to, had no other memory been found for it.
  void note_avoided_wait();
  // Whether streams wait for values in memory, which only later submissions may write.
  bool has_value_waits() const { return contexts_.has_value_waits(); }
  // Whether more than one thread was seen to submit work, or to free.
  bool has_several_threads() const { return several_threads_.load(std::memory_order_relaxed); }

  // The context it serves; null between two contexts. Stamps keep rising across them.
  driver::Context context() const { return context_.load(std::memory_order_acquire); }
  // `has_work`: some may be pending there that was not noted.
  void begin(driver::Context context, bool has_work = false);
  void end();
  // Only in a fork child: there is no work and no other thread.
  void forget_after_fork();

 private:
  // So many frees that seal, or as many as seals are pending, go by between a poll and one in a free: a
  // device that is far behind is not asked more often than it answers. A poll costs more than a seal.
  static constexpr size_t kFewestBetweenPolls = 8;
  static constexpr size_t kMostBetweenPolls = 64;

  // Its address names the calling thread.
  static inline constinit thread_local char thread_token_ = 0;

  static uint64_t next_life() {
    static constinit std::atomic<uint64_t> lives{0};
    return lives.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  bool is_touched_directly() const { return direct_.load(std::memory_order_seq_cst); }
  // The highest stamp that is done, or ordered before all later work of the context.
  Epoch ordered() const { return kFence ? ordered_.load(std::memory_order_acquire) : kAnyStamp; }

  void raise_lean(Epoch stamp);
  void demand_of_others(Epoch stamp, LaneName sole);
  Epoch newest_leant_on_locked() const CUPOOL_REQUIRES(lock_);
  void lean_on_seal(Epoch stamp, driver::Address block, LaneName sole);
  bool wait_for_lean(Lane lane, driver::Stream stream);
  // A wait of a stream or a context for a seal, which is made without the lock.
  struct Wait {
    Epoch epoch = 0;
    driver::Event event = nullptr;
    uint64_t life = 0;
  };
  Wait begin_device_wait_locked(Seal& seal) CUPOOL_REQUIRES(lock_);
  bool end_device_wait_locked(const Wait& wait) CUPOOL_REQUIRES(lock_);
  // What may be done where a graph's launch could lose a stream's wait.
  enum class Beside { kContextWaits, kNothing };
  enum class Made { kYes, kRefused, kLost };
  Made make_wait(Lane lane, driver::Stream stream, driver::Context context, driver::Event event,
                 Beside beside);
  void note(Lane lane);
  bool has_new_work_locked() CUPOOL_REQUIRES(lock_);
  void forget_new_work_locked() CUPOOL_REQUIRES(lock_);
  void forget_waited_locked(Lane lane) CUPOOL_REQUIRES(lock_);
  void count_decided_locked() CUPOOL_REQUIRES(lock_);
  void note_thread_locked() CUPOOL_REQUIRES(lock_);
  void note_turn_locked() CUPOOL_REQUIRES(lock_);
  // The same as wait_for() for a block that is handed out or about to be: also during a capture, which a
  // question does not break.
  bool wait_for_old_work(Epoch epoch);
  enum class Kind { kInFree, kForCompletion };
  bool wait_for(Epoch epoch, Kind kind, uint64_t most_ns);
  bool seal_if_event(bool matters);
  bool seal_locked(Kind kind, trace::Ordering told_as = trace::Ordering::kSeal) CUPOOL_REQUIRES(lock_);
  bool order(Epoch epoch);
  void set_ordered_locked(Epoch epoch) CUPOOL_REQUIRES(lock_);
  void lower_ordered_locked() CUPOOL_REQUIRES(lock_);
  void poll_locked(trace::Ordering told_as = trace::Ordering::kDone) CUPOOL_REQUIRES(lock_);
  void complete_locked(Epoch epoch) CUPOOL_REQUIRES(lock_);
  Epoch open_next_locked() CUPOOL_REQUIRES(lock_);
  void close_idle_epoch_locked() CUPOOL_REQUIRES(lock_);
  void add_noted_locked(Lane lanes) CUPOOL_REQUIRES(lock_);
  void refresh_locked() CUPOOL_REQUIRES(lock_);
  Lane in_use_locked() const CUPOOL_REQUIRES(lock_);

  alignas(64) std::atomic<Epoch> open_{1};
  std::atomic<Epoch> completed_{0};  // the highest epoch whose work is done
  std::atomic<Epoch> ordered_{0};    // the same, or the highest that all later work of the context waits for
  std::atomic<Epoch> ordered_everywhere_{0};  // a hand-out of a block up to this asks nothing of any stream
  std::atomic<Epoch> sealed_{0};              // the highest epoch with an event that work may wait for
  std::atomic<Epoch> lean_{0};                // the highest stamp that every lane must wait for
  std::atomic<uint64_t> demand_{0};           // number of the newest in `demands_`; 0: all are done
  std::atomic<Lane> noted_{Lane::kNone};      // lanes given work since the last seal
  // This lane is noted and it is its turn: its next submission changes nothing. kMany: the same for every
  // lane. Cleared before either changes.
  std::atomic<Lane> quiet_{Lane::kNone};
  std::atomic<bool> idle_{true};
  std::atomic<bool> one_lane_{true};  // all pending work is in one lane, and all of it is seen
  std::atomic<Reuse> reuse_{Reuse::kLean};
  std::atomic<uint64_t> life_{next_life()};  // another one for every context
  WaitedLanes waited_;
  Turns turns_;

  driver::Driver& driver_;
  CaptureGate& gate_;
  Contexts& contexts_;
  std::atomic<driver::Context> context_{nullptr};
  std::atomic<driver::Status> refusal_{driver::kUnknown};
  std::atomic<size_t> lanes_{0};
  std::atomic<bool> several_threads_{false};
  std::atomic<bool> direct_{false};
  std::atomic<bool> was_quiet_{false};
  std::atomic<Epoch> owed_{
      0};  // during a capture a hand-out, or untracked work, could not be ordered after this
  std::atomic<bool> wants_spare_{false};
  std::atomic<bool> is_visited_{false};  // another context's streams may copy from and to blocks of this one
  Epoch looked_at_ = 0;                  // the open epoch at the last look

  alignas(64) Lock lock_{Rank::kTimeline};
  bool has_untracked_work_ CUPOOL_GUARDED_BY(lock_) = false;  // work may be submitted unseen
  bool failed_ CUPOOL_GUARDED_BY(lock_) = false;              // the driver no longer answers for its events
  const void* thread_ CUPOOL_GUARDED_BY(lock_) = nullptr;     // identifies the thread noted first
  const void* sealer_ CUPOOL_GUARDED_BY(lock_) = nullptr;     // whose free made the newest seal, if one did
  size_t polls_in_ CUPOOL_GUARDED_BY(lock_) = kFewestBetweenPolls;  // so many frees until one polls
  uint64_t asked_before_ CUPOOL_GUARDED_BY(lock_) = 0;  // questions until the last poll that found some
  uint32_t stream_waits_ CUPOOL_GUARDED_BY(lock_) = 0;
  // For the count of waits avoided.
  stats::Device* counts_ CUPOOL_GUARDED_BY(lock_) = nullptr;
  uint64_t work_counted_ CUPOOL_GUARDED_BY(lock_) = 0;  // the thread's last piece of work when it was counted
  Epoch epoch_counted_ CUPOOL_GUARDED_BY(lock_) = 0;    // work of epochs up to this was counted
  uint32_t asked_to_count_ CUPOOL_GUARDED_BY(lock_) = 0;
  uint64_t demands_made_ CUPOOL_GUARDED_BY(lock_) = 0;
  Demands demands_ CUPOOL_GUARDED_BY(lock_);
  LeantBlocks leant_blocks_ CUPOOL_GUARDED_BY(lock_);
  Seals seals_ CUPOOL_GUARDED_BY(lock_);
  driver::Stream spare_ CUPOOL_GUARDED_BY(lock_) = nullptr;
  bool has_no_spare_ CUPOOL_GUARDED_BY(lock_) = false;  // the driver makes none
};

}  // namespace cupool::order
