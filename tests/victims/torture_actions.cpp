// More of what a thread of the torture victim does: copies, waits, host functions, and memory that changes
// hands.
#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "torture_worker.hpp"

namespace torture {

// Copies of all kinds. Synchronous ones are work on a default stream, the legacy one or the thread's own.
void Worker::copy() {
  if (blocks_.size() < 2) return allocate();
  Block& from = blocks_[below(random_, blocks_.size())];
  if (from.value >= 0x100) return;
  Lease lease = world_.streams.choose(random_);
  const bool synchronous = lease.mark.kind != Mark::kCreated && (lease.stream == nullptr);
  // The driver orders it with work of the other device, whose turns may wait for this one.
  if (synchronous && options.has(kMeets) && from.place != world_.place) return;
  if (!synchronous || one_in(random_, 2)) {
    Block& to = blocks_[below(random_, blocks_.size())];
    if (&to == &from || to.bytes > from.bytes) return;
    if (synchronous && options.has(kMeets) && to.place != world_.place) return;
    if (!order_read(from, lease) || !order_write(to, lease)) return;
    {
      const Pass held = synchronous ? unsafe() : Pass();
      const Pass on_legacy = world_.streams.pass(lease);
      const Pass nothing_closed = synchronous ? waits() : Pass();
      if (synchronous) {
        MUST(lease.pick(world_.api.cuMemcpyDtoD_v2)(to.p, from.p, to.bytes));
      } else {
        MUST(lease.pick(world_.api.cuMemcpyDtoDAsync_v2)(to.p, from.p, to.bytes, lease.stream));
      }
    }
    if (!(lease.mark == from.writer)) from.readers.push_back(lease.mark);
    to.value = from.value;
    note(synchronous ? "copied at once into" : "copied into", to, lease);
    wrote(to, lease);
    return;
  }
  std::vector<unsigned char> host(std::min<std::uint64_t>(from.bytes, 4096));
  const std::uint64_t offset = from.bytes - host.size();
  if (one_in(random_, 2)) {
    if (!order_read(from, lease)) return;
    const Pass held = unsafe();
    const Pass on_legacy = world_.streams.pass(lease);
    const Pass nothing_closed = waits();
    MUST(lease.pick(world_.api.cuMemcpyDtoH_v2)(host.data(), from.p + offset, host.size()));
    for (const unsigned char byte : host) world_.tally.wrong += byte != from.value;
    return;
  }
  // What is copied in must be what is there already: a block has one value.
  if (!order_write(from, lease)) return;
  std::memset(host.data(), static_cast<int>(from.value), host.size());
  {
    const Pass held = unsafe();
    const Pass on_legacy = world_.streams.pass(lease);
    const Pass nothing_closed = waits();
    if (one_in(random_, 2)) {
      MUST(lease.pick(world_.api.cuMemcpyHtoD_v2)(from.p + offset, host.data(), host.size()));
    } else {
      MUST(lease.pick(world_.api.cuMemsetD8_v2)(from.p + offset, static_cast<unsigned char>(from.value),
                                                host.size()));
    }
  }
  note("wrote the end of", from, lease);
  wrote(from, lease);
}

void Worker::hand_over() {
  if (blocks_.empty() || (world_.mailboxes.size() < 2 && !options.has(kPeers))) return;
  Mailbox& mailbox = world_.mailboxes[below(random_, world_.mailboxes.size())];
  pass_on(take_any(), mailbox);
}

// What another device can use besides: it cannot launch a graph of this one, nor reach memory of its pools.
bool Worker::make_portable(Block& block) {
  if (block.readers.size() >= 4) return false;
  if (options.has(kPeers) ? block.pooled || block.managed : block.value >= 0x100) return false;
  const Pass held = unsafe();
  auto convert = [&](Mark& mark) {
    if (mark.kind == Mark::kEvent || mark.kind == Mark::kNothing) return true;
    CUevent event = nullptr;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    if (world_.streams.make_portable(mark, event)) return true;
    MUST(cuEventDestroy(event));
    return false;
  };
  bool portable = convert(block.writer);
  for (Mark& reader : block.readers) portable = portable && convert(reader);
  if (!portable || !options.has(kPeers)) return portable;
  block.turns = std::max(block.turns, world_.meetings.begun_by(world_.place));
  if (block.graph != nullptr) MUST(cuGraphExecDestroy(block.graph));
  block.graph = nullptr;
  return true;
}

void Worker::pass_on(Block block, Mailbox& mailbox) {
  if (!make_portable(block)) return free_block(block);
  const std::lock_guard<std::mutex> lock(mailbox.mutex);
  mailbox.blocks.push_back(std::move(block));
}

void Worker::receive() {
  Mailbox& mailbox = world_.mailboxes[number_];
  Block block;
  {
    const std::lock_guard<std::mutex> lock(mailbox.mutex);
    if (mailbox.blocks.empty()) return;
    block = std::move(mailbox.blocks.front());
    mailbox.blocks.pop_front();
  }
  if (options.has(kPeers) && !may_take(block)) return take_by_copy(block);
  // Either the streams wait (order_read and order_write will see to it), or the host does now.
  const std::uint64_t how = below(random_, 4);
  if (how < 2 && options.has(kWaits)) {
    const Pass held = unsafe();
    const Pass nothing_closed = waits();
    auto wait = [&](const Mark& mark) {
      if (mark.kind != Mark::kEvent) return;
      CUresult result = how == 0 ? cuEventSynchronize(mark.event) : cuEventQuery(mark.event);
      while (how == 1 && result == CUDA_ERROR_NOT_READY) result = cuEventQuery(mark.event);
      must(result, "waiting for an event");
    };
    wait(block.writer);
    for (const Mark& reader : block.readers) wait(reader);
    settle(block);
  }
  note("received", block, {});
  live_ += block.bytes;
  blocks_.push_back(std::move(block));
  if (one_in(random_, 2)) {
    std::swap(blocks_.front(), blocks_.back());
    write_one();
  }
}

void Worker::wait_somehow() {
  const Pass held = unsafe();
  if (one_in(random_, 4)) {
    const Pass nobody_captures(world_.gates.whole, Side::kCall);
    const Pass nothing_closed = waits();
    MUST(cuCtxSynchronize());
    History::note({0, "waited for everything", 0, 0, 0, {}, {}});
    return;
  }
  const Lease lease = world_.streams.choose(random_);
  if (one_in(random_, 3)) {
    world_.streams.record(scratch_, lease);
    const Pass nothing_closed = waits();
    if (one_in(random_, 2)) {
      MUST(cuEventSynchronize(scratch_));
    } else if (const CUresult result = cuEventQuery(scratch_); result != CUDA_ERROR_NOT_READY) {
      must(result, "cuEventQuery");
    }
    return;
  }
  const Pass on_legacy = world_.streams.pass(lease);
  const Pass nothing_closed = waits();
  if (one_in(random_, 2)) {
    MUST(lease.pick(world_.api.cuStreamSynchronize)(lease.stream));
  } else if (const CUresult result = lease.pick(world_.api.cuStreamQuery)(lease.stream);
             result != CUDA_ERROR_NOT_READY) {
    must(result, "cuStreamQuery");
  }
}

void Worker::wait_for_own_stream() {
  const Pass held = unsafe();
  const Pass nothing_closed = waits();
  MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

void Worker::host_function() {
  const Lease lease = world_.streams.choose(random_);
  const Pass on_legacy = world_.streams.pass(lease);
  const CUhostFn count = [](void* data) { static_cast<std::atomic<unsigned long>*>(data)->fetch_add(1); };
  static std::atomic<unsigned long> calls{0};
  MUST(lease.pick(world_.api.cuLaunchHostFunc)(lease.stream, count, &calls));
}

// A thread that lives for a few operations: its default stream and whatever is cached for it end with it. A
// real driver (580) now and then deadlocks by itself if the stream has work then (docs/driver-reports.md).
void Worker::child() {
  if (!may_have_children_) return;
  Worker young(world_, number_, random_());
  young.may_have_children_ = false;
  const std::uint64_t operations = 1 + below(random_, 12);
  std::thread thread([&] { young.run(operations, 0); });
  thread.join();
}

}  // namespace torture
