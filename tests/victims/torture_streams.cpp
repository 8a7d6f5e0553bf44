// See torture_streams.hpp. A slot's lock is held shared by everyone who submits there, alone by whoever
// captures on the stream or replaces it; it is never waited for, so it cannot take part in a deadlock with
// the gates.
#include "torture_streams.hpp"

#include "torture_history.hpp"

namespace torture {

void Streams::create(Slot& slot, Random& random) {
  slot.blocking = one_in(random, 2);
  const unsigned flags = slot.blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
  if (one_in(random, 3)) {
    int least = 0;
    int greatest = 0;
    MUST(cuCtxGetStreamPriorityRange(&least, &greatest));
    MUST(cuStreamCreateWithPriority(&slot.stream, flags, one_in(random, 2) ? least : greatest));
  } else {
    MUST(cuStreamCreate(&slot.stream, flags));
  }
}

void Streams::create_all(Random& random) {
  for (Slot& slot : slots_) create(slot, random);
}

void Streams::destroy_all() {
  for (Slot& slot : slots_) {
    if (slot.stream != nullptr) MUST(cuStreamDestroy(slot.stream));
    if (slot.last_words != nullptr) MUST(cuEventDestroy(slot.last_words));
    slot.stream = nullptr;
    slot.last_words = nullptr;
    ++slot.generation;
  }
}

std::optional<Lease> Streams::created(unsigned index) {
  Slot& slot = slots_[index];
  Lease lease;
  lease.shared_ = std::shared_lock(slot.mutex, std::try_to_lock);
  if (!lease.shared_.owns_lock() || slot.stream == nullptr) return std::nullopt;
  lease.stream = slot.stream;
  lease.blocking = slot.blocking;
  lease.mark = {Mark::kCreated, index, slot.generation, nullptr, 0};
  return lease;
}

Lease Streams::by_code(unsigned code) {
  if (code >= 4) {
    if (std::optional<Lease> lease = created(code - 4)) return std::move(*lease);
    code = 2;
  }
  Lease lease;
  const bool own = code >= 2 && options.has(kPerThread);
  lease.mark.kind = own ? Mark::kOwn : Mark::kLegacy;
  if (own && code == 2) lease.stream = CU_STREAM_PER_THREAD;
  if (own && code == 3) lease.per_thread_entry = true;
  if (!own && code % 2 == 1) lease.stream = CU_STREAM_LEGACY;
  return lease;
}

Lease Streams::choose(Random& random) {
  if (!options.has(kStreams)) return by_code(static_cast<unsigned>(below(random, 2)));
  constexpr unsigned kStretches[] = {8, 40, 200};
  if (one_in(random, kStretches[options.seed % 3])) {
    common_.store(one_in(random, 4) ? kMix : static_cast<unsigned>(below(random, kCodes)),
                  std::memory_order_relaxed);
  }
  const unsigned common = common_.load(std::memory_order_relaxed);
  if (common == kMix || one_in(random, 24)) return by_code(static_cast<unsigned>(below(random, kCodes)));
  return by_code(common);
}

std::optional<Lease> Streams::choose_alone(Random& random, bool own_allowed) {
  if (own_allowed && options.has(kPerThread) && one_in(random, 4))
    return by_code(2 + static_cast<unsigned>(below(random, 2)));
  const unsigned index = static_cast<unsigned>(below(random, kCreated));
  Slot& slot = slots_[index];
  Lease lease;
  lease.alone_ = std::unique_lock(slot.mutex, std::try_to_lock);
  if (!lease.alone_.owns_lock() || slot.stream == nullptr) return std::nullopt;
  lease.stream = slot.stream;
  lease.blocking = slot.blocking;
  lease.mark = {Mark::kCreated, index, slot.generation, nullptr, 0};
  return lease;
}

std::optional<Lease> Streams::stream_of(const Mark& mark) {
  if (mark.kind == Mark::kLegacy) return by_code(0);
  if (mark.kind == Mark::kOwn) return by_code(2);
  std::optional<Lease> lease = created(mark.slot);
  if (lease && lease->mark.generation != mark.generation) return std::nullopt;
  return lease;
}

void Streams::record(CUevent event, const Lease& lease) {
  const Pass held = pass(lease);
  const std::unique_lock<std::mutex> no_graphs = apart_unless_beside(lease);
  MUST(lease.pick(api_.cuEventRecord)(event, lease.stream));
}

// A thread's own stream gets nothing from others.
std::unique_lock<std::mutex> Streams::apart(const Lease& lease) {
  if (lease.mark.kind == Mark::kOwn) return {};
  return std::unique_lock(lease.legacy() ? legacy_apart_ : slots_[lease.mark.slot].apart);
}

void Streams::wait_for_event(const Lease& target, CUevent event) {
  const Pass held = pass(target);
  const std::unique_lock<std::mutex> no_graphs = apart(target);
  MUST(target.pick(api_.cuStreamWaitEvent)(target.stream, event, 0));
}

// The legacy stream and every blocking one wait for each other: a program may lean on that.
bool Streams::waits_by_itself(const Mark& mark, const Lease& target) {
  if (mark.kind == Mark::kLegacy) return target.blocking;
  if (!target.legacy()) return false;
  if (mark.kind == Mark::kOwn) return true;
  std::optional<Lease> lease = created(mark.slot);
  if (!lease || lease->mark.generation != mark.generation || !lease->blocking) return false;
  target.waited_for_.push_back(std::move(lease->shared_));
  return true;
}

bool Streams::order(Random& random, const Mark& mark, const Lease& target, CUevent scratch) {
  if (mark.kind == Mark::kNothing || mark == target.mark) return true;
  const auto note = [&](const char* what) { History::note({0, what, 0, 0, 0, target.mark, mark}); };
  if (mark.kind == Mark::kEvent) {
    wait_for_event(target, mark.event);
    note("ordered by the block's event");
    return true;
  }
  if (one_in(random, 2) && waits_by_itself(mark, target)) {
    note("leans on the legacy stream");
    return true;
  }
  if (const std::optional<Lease> source = stream_of(mark)) {
    record(scratch, *source);
    wait_for_event(target, scratch);
    note("ordered by an event");
    return true;
  }
  // Its stream is gone, or busy with a capture. Of a gone one the last words are left.
  const std::optional<Lease> now = created(mark.slot);
  if (!now || now->mark.generation == mark.generation) return false;
  wait_for_event(target, slots_[mark.slot].last_words);
  note("ordered by last words");
  return true;
}

bool Streams::make_portable(Mark& mark, CUevent event) {
  if (mark.kind == Mark::kEvent) return false;
  if (mark.kind == Mark::kCreated) {
    const std::optional<Lease> source = stream_of(mark);
    if (!source) return false;
    record(event, *source);
  } else {
    record(event, *stream_of(mark));
  }
  mark = {Mark::kEvent, 0, 0, event, place_};
  return true;
}

void Streams::replace_one(Random& random) {
  Slot& slot = slots_[below(random, kCreated)];
  const std::unique_lock lock(slot.mutex, std::try_to_lock);
  if (!lock.owns_lock() || slot.stream == nullptr) return;
  // The last words also follow the last words before them, so that one event covers all earlier generations.
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  if (slot.last_words != nullptr) MUST(cuStreamWaitEvent(slot.stream, slot.last_words, 0));
  MUST(cuEventRecord(event, slot.stream));
  if (slot.last_words != nullptr) MUST(cuEventDestroy(slot.last_words));
  slot.last_words = event;
  if (one_in(random, 3)) MUST(cuStreamSynchronize(slot.stream));
  const unsigned index = static_cast<unsigned>(&slot - slots_.data());
  History::note({0,
                 slot.blocking ? "replaces blocking" : "replaces",
                 0,
                 0,
                 0,
                 {Mark::kCreated, index, slot.generation, nullptr, 0},
                 {}});
  CUstream const old = slot.stream;
  slot.stream = nullptr;
  ++slot.generation;
  MUST(cuStreamDestroy(old));
  create(slot, random);
}

}  // namespace torture
