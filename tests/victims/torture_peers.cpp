// What the torture victim does between two devices: one's kernels and copies on the other's memory, and turns
// in which they wait for each other. The driver's free waits for no other context, so a block is freed when
// the program knows the work of the other one to be over. See Meetings for what turns ask besides.
#include <algorithm>

#include "torture_worker.hpp"

namespace torture {

void open_to_other(World& world) {
  MUST(cuCtxSetCurrent(world.other->context));
  const CUresult result = cuCtxEnablePeerAccess(world.context, 0);
  // Another thread may have come first.
  if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) must(result, "cuCtxEnablePeerAccess");
  world.is_open = true;
}

void Worker::cross() {
  if (options.has(kMeets)) {
    if (is_rank()) meet();
    return;
  }
  if (!options.has(kApart) && one_in(random_, 8)) return let_in();
  if (one_in(random_, 4)) return visit();
  allocate_there();
}

// Where access is opened, the pool may wait for what the frees so far would have waited for.
void Worker::let_in() {
  World& owner = one_in(random_, 2) ? world_ : *world_.other;
  if (owner.is_open) return;
  const Pass held = unsafe();
  const Pass nothing_closed = waits();
  open_to_other(owner);
  MUST(cuCtxSetCurrent(world_.context));
  History::note({0, "opened one device's memory to the other", 0, 0, 0, {}, {}});
}

// Memory of the other device whose first work is this one's.
void Worker::allocate_there() {
  if (!world_.other->is_open || blocks_.size() >= 24) return;
  Block block;
  block.bytes = random_size();
  block.place = world_.other->place;
  if (live_ + block.bytes > options.live_bytes) return;
  CUresult result = CUDA_SUCCESS;
  {
    const Pass held = unsafe();
    MUST(cuCtxSetCurrent(world_.other->context));
    result = cuMemAlloc(&block.p, block.bytes);
    MUST(cuCtxSetCurrent(world_.context));
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    ++world_.tally.full;
    return free_all();
  }
  must(result, "allocation on the other device");
  ++world_.tally.allocations;
  const Lease lease = world_.streams.choose(random_);
  note("allocated on the other device", block, lease);
  live_ += block.bytes;
  blocks_.push_back(block);
  fill(blocks_.back(), lease);
}

// The thread works on the other device for a while, with some of its blocks.
void Worker::visit() {
  if (!may_have_children_) return;
  Worker guest(*world_.other, number_, random_());
  guest.may_have_children_ = false;
  for (std::uint64_t i = world_.is_open ? below(random_, 4) : 0; i > 0 && !blocks_.empty(); --i) {
    Block block = take_any();
    if (!make_portable(block)) {
      free_block(block);
      continue;
    }
    guest.live_ += block.bytes;
    guest.blocks_.push_back(std::move(block));
  }
  guest.run(1 + below(random_, 12), 0);
  MUST(cuCtxSetCurrent(world_.context));
}

bool Worker::is_rank() const {
  return options.has(kMeets) && number_ < 2 && world_.mailboxes.size() > 1 && may_have_children_;
}

// False: not now.
bool Worker::meet() {
  const std::optional<unsigned> turn = world_.meetings.begin(world_.place);
  if (!turn) return false;
  if (meeting_ == nullptr) {
    const Pass held = unsafe();
    MUST(cuStreamCreate(&meeting_, CU_STREAM_NON_BLOCKING));
  }
  // After some of the device's work, and before some.
  world_.streams.record(scratch_, world_.streams.choose(random_));
  MUST(cuStreamWaitEvent(meeting_, scratch_, 0));
  const Lease lease = lease_of(meeting_);
  world_.kernels.fill(world_.meetings.word(world_.place, *turn), sizeof(unsigned), 1, lease);
  world_.kernels.await(world_.meetings.word(1 - world_.place, *turn), 0x01010101, lease);
  MUST(cuEventRecord(scratch_, meeting_));
  world_.streams.wait_for_event(world_.streams.choose(random_), scratch_);
  world_.meetings.made(world_.place);
  History::note({0, "made a turn", 0, 0, *turn, lease.mark, {}});
  return true;
}

// The other rank may have turns yet to make, and waits for this one.
void Worker::end_meetings() {
  if (!is_rank()) return;
  world_.meetings.close(world_.place);
  while (meet()) {
  }
  if (meeting_ == nullptr) return;
  const Pass held = unsafe();
  MUST(cuStreamDestroy(meeting_));
}

bool Worker::may_take(const Block& block) const {
  const bool reaches = block.place == world_.place || world_.other->is_open;
  return reaches && block.turns <= world_.meetings.made_by(world_.place);
}

// A copy needs no access.
void Worker::take_by_copy(Block& block) {
  Block own;
  own.bytes = block.bytes;
  own.place = world_.place;
  const bool is_early = block.turns > world_.meetings.made_by(world_.place);
  if (is_early || block.value >= 0x100 || live_ + own.bytes > options.live_bytes) return put_back(block);
  {
    const Pass held = unsafe();
    if (const CUresult result = cuMemAlloc(&own.p, own.bytes); result == CUDA_ERROR_OUT_OF_MEMORY) {
      ++world_.tally.full;
      own.p = 0;
    } else {
      must(result, "allocation of a copy");
    }
  }
  if (own.p == 0) return put_back(block);
  ++world_.tally.allocations;
  const Lease lease = world_.streams.choose(random_);
  order_read(block, lease);  // all its marks are events
  {
    const Pass on_legacy = world_.streams.pass(lease);
    if (one_in(random_, 2)) {
      MUST(lease.pick(world_.api.cuMemcpyPeerAsync)(own.p, world_.context, block.p, world_.other->context,
                                                    own.bytes, lease.stream));
    } else {
      MUST(lease.pick(world_.api.cuMemcpyDtoDAsync_v2)(own.p, block.p, own.bytes, lease.stream));
    }
  }
  own.value = block.value;
  own.writer = lease.mark;
  block.readers.push_back(lease.mark);
  note("copied from the other device to", own, lease);
  live_ += own.bytes;
  blocks_.push_back(own);
  if (one_in(random_, 2)) return send_home(block);
  free_block(block);
}

void Worker::send_home(Block& block) {
  if (!make_portable(block)) {
    const Pass held = unsafe();
    await_work(block);
  }
  put_back(block);
}

void Worker::put_back(Block& block) {
  Mailbox& mailbox = world_.mailboxes[block.place % world_.mailboxes.size()];
  const std::lock_guard<std::mutex> lock(mailbox.mutex);
  mailbox.blocks.push_back(std::move(block));
}

// The host waits for all work on the block. pre: the unsafe gate.
void Worker::await_work(Block& block) {
  bool all = false;
  const auto wait = [&](const Mark& mark) {
    if (mark.kind == Mark::kNothing) return;
    if (mark.kind != Mark::kEvent) {
      const std::optional<Lease> lease = world_.streams.stream_of(mark);
      all = all || !lease;
      if (!lease) return;
      world_.streams.record(scratch_, *lease);
    }
    const Pass nothing_closed = waits();
    MUST(cuEventSynchronize(mark.kind == Mark::kEvent ? mark.event : scratch_));
  };
  wait(block.writer);
  for (const Mark& reader : block.readers) wait(reader);
  if (all) {
    const Pass nobody_captures(world_.gates.whole, Side::kCall);
    const Pass nothing_closed = waits();
    MUST(cuCtxSynchronize());
  }
  settle(block);
}

// Sees to it that the owner's free waits for all work on the block, or that it is over. False: where devices
// meet, the block goes home instead, for a free there waits for turns that this device has yet to make.
bool Worker::may_be_freed(Block& block) {
  if (options.has(kMeets) && block.place != world_.place) {
    send_home(block);
    return false;
  }
  const auto is_elsewhere = [&](const Mark& mark) {
    return mark.kind != Mark::kNothing &&
           (mark.kind == Mark::kEvent ? mark.place : world_.place) != block.place;
  };
  const bool any =
      is_elsewhere(block.writer) || std::any_of(block.readers.begin(), block.readers.end(), is_elsewhere);
  if (!any) return true;
  if (block.place == world_.place && one_in(random_, 2)) {
    const Lease lease = world_.streams.choose(random_);
    const auto wait = [&](const Mark& mark) {
      if (is_elsewhere(mark)) world_.streams.wait_for_event(lease, mark.event);
    };
    wait(block.writer);
    for (const Mark& reader : block.readers) wait(reader);
    return true;
  }
  const Pass held = unsafe();
  await_work(block);
  return true;
}

}  // namespace torture
