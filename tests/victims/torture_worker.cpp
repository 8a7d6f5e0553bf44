// What a thread of the torture victim does with memory and streams. Gates are taken unsafe first and around
// as little as possible; see torture_gates.hpp.
#include "torture_worker.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace torture {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void Worker::run(std::uint64_t operations, double deadline) {
  value_ = 31 * number_;
  world_.history.enter(number_);
  try {
    MUST(cuCtxSetCurrent(world_.context));
    {
      const Pass held = unsafe();
      MUST(cuEventCreate(&scratch_, CU_EVENT_DISABLE_TIMING));
    }
    for (std::uint64_t i = 0; deadline > 0 ? now() < deadline : i < operations; ++i) {
      step();
      if (world_.kernels.wrong_so_far() != 0) break;
      world_.tally.operations.fetch_add(1, std::memory_order_relaxed);
    }
    end_meetings();
    if (!options.has(kResets) || one_in(random_, 2)) free_all();
    drop_words();
    if (!may_have_children_ && !options.has(kAbandon)) wait_for_own_stream();
    const Pass held = unsafe();
    MUST(cuEventDestroy(scratch_));
  } catch (const Stop& stop) {
    std::fprintf(stderr, "torture: thread %u stops: %s: driver error %d\n", number_, stop.what, stop.result);
    ++world_.tally.stopped;
  }
}

void Worker::step() {
  struct Choice {
    unsigned weight;
    unsigned features;
    void (Worker::*act)();
  };
  static constexpr Choice kChoices[] = {{30, 0, &Worker::allocate},
                                        {30, 0, &Worker::finish_one},
                                        {12, 0, &Worker::write_one},
                                        {10, 0, &Worker::read_one},
                                        {8, kCopies, &Worker::copy},
                                        {8, kHandOver, &Worker::hand_over},
                                        {9, kHandOver, &Worker::receive},
                                        {5, kWaits, &Worker::wait_somehow},
                                        {6, 0, &Worker::spin},
                                        {2, kHost, &Worker::host_function},
                                        {4, kGraphs, &Worker::capture},
                                        {5, kGraphs, &Worker::relaunch},
                                        {8, kWords, &Worker::streams_wait},
                                        {8, kAwaits, &Worker::streams_wait},
                                        {1, kChildren, &Worker::child},
                                        {1, kContexts, &Worker::second_context}};
  unsigned total = 0;
  for (const Choice& choice : kChoices) total += choice.weight;
  unsigned pick = static_cast<unsigned>(below(random_, total));
  for (const Choice& choice : kChoices) {
    if (pick < choice.weight) {
      if ((choice.features & ~options.features) == 0) (this->*choice.act)();
      break;
    }
    pick -= choice.weight;
  }
  if (options.has(kCrash) && one_in(random_, 150)) {
    const Lease lease = world_.streams.choose(random_);
    const Pass on_legacy = world_.streams.pass(lease);
    world_.kernels.fill(0x10000, 4096, 1, lease);
  }
  if (options.has(kPeers) && one_in(random_, 8)) cross();
  if (options.has(kDestroy) && one_in(random_, 40)) {
    const Pass held = unsafe();
    const Pass nothing_closed = waits();
    world_.streams.replace_one(random_);
  }
}

// In two runs of three few different sizes, so that what was freed is soon given again.
std::uint64_t Worker::random_size() {
  auto any = [](Random& random) {
    const int bits = 64 - __builtin_clzll(options.most_bytes);
    const std::uint64_t low = std::uint64_t{1} << below(random, static_cast<std::uint64_t>(bits));
    return std::min(low + below(random, low), options.most_bytes);
  };
  if (options.seed % 3 == 0) return any(random_);
  Random palette(options.seed + below(random_, 4));
  return any(palette);
}

// Any call that gives device memory. The result may be out of memory; other errors end the thread.
CUresult Worker::get_memory(Block& block) {
  const Pass held = unsafe();
  if (options.has(kPooled) && one_in(random_, 8)) {
    const Lease lease = world_.streams.choose(random_);
    const Pass on_legacy = world_.streams.pass(lease);
    const std::unique_lock<std::mutex> no_graphs = world_.streams.apart(lease);
    block.pooled = true;
    block.writer = lease.mark;
    return lease.pick(world_.api.cuMemAllocAsync)(&block.p, block.bytes, lease.stream);
  }
  if (options.has(kManaged) && one_in(random_, 4)) {
    block.managed = true;
    return cuMemAllocManaged(&block.p, block.bytes, CU_MEM_ATTACH_GLOBAL);
  }
  if (one_in(random_, 16) && block.bytes >= 4096) {
    std::size_t pitch = 0;
    const std::size_t height = 1 + below(random_, 8);
    const std::size_t width = block.bytes / height;
    const CUresult result = cuMemAllocPitch(&block.p, &pitch, width, height, 4);
    block.bytes = pitch * height;
    return result;
  }
  return cuMemAlloc(&block.p, block.bytes);
}

void Worker::allocate() {
  Block block;
  block.bytes = random_size();
  block.place = world_.place;
  if (blocks_.size() >= 24 || live_ + block.bytes > options.live_bytes) return finish_one();
  const CUresult result = get_memory(block);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    ++world_.tally.full;
    return free_all();
  }
  must(result, "allocation");
  ++world_.tally.allocations;
  History::note({0, "allocated", block.p, block.bytes, block.pooled, block.writer, {}});
  const bool is_plain = !block.pooled && !block.managed;
  if (is_plain && options.has(kPooled) && one_in(random_, 16)) return free_unused(block);
  if (is_plain && options.has(kPeers) && one_in(random_, 8)) {
    // Whoever gets it is the first to use it, perhaps on the other device.
    block.value = 0x100;
    return pass_on(std::move(block), world_.mailboxes[below(random_, world_.mailboxes.size())]);
  }
  live_ += block.bytes;
  blocks_.push_back(block);
  // The driver's own free waits for everything, so fresh memory may be written at once, on any stream or by
  // the host.
  if (block.managed && one_in(random_, 2)) {
    blocks_.back().value = fresh_value();
    std::memset(reinterpret_cast<void*>(block.p), static_cast<int>(blocks_.back().value), block.bytes);
    return;
  }
  const Lease lease = world_.streams.choose(random_);
  if (order_write(blocks_.back(), lease)) {
    fill(blocks_.back(), lease);
  } else {
    blocks_.back().value = 0x100;
  }
}

Block Worker::take_any() {
  const std::size_t i = below(random_, blocks_.size());
  Block block = std::move(blocks_[i]);
  blocks_[i] = std::move(blocks_.back());
  blocks_.pop_back();
  live_ -= block.bytes;
  return block;
}

void Worker::finish_one() {
  if (blocks_.empty()) return;
  Block block = take_any();
  const Lease lease = world_.streams.choose(random_);
  if (block.value < 0x100 && order_read(block, lease)) check(block, lease);
  free_block(block);
}

void Worker::free_block(Block& block) {
  if (options.has(kPeers) && !may_be_freed(block)) return;
  const Pass held = unsafe();
  ++world_.tally.frees;
  const bool may_be_in_order = options.has(kPooled) && !block.managed && block.place == world_.place;
  bool in_order = block.pooled || (may_be_in_order && one_in(random_, 6));
  if (in_order && block.pooled && one_in(random_, 4)) in_order = false;
  if (in_order) {
    // A stream-ordered free comes after all use of the memory.
    const Lease lease = world_.streams.choose(random_);
    in_order = order_write(block, lease);
    if (in_order) {
      note("frees in order", block, lease);
      const Pass on_legacy = world_.streams.pass(lease);
      const std::unique_lock<std::mutex> no_graphs = world_.streams.apart_unless_beside(lease);
      MUST(lease.pick(world_.api.cuMemFreeAsync)(block.p, lease.stream));
    }
  }
  if (!in_order) {
    const Pass nothing_closed = waits();
    if (block.pooled) {
      // For memory of the driver's pool cuMemFree waits for nothing: its work must be over.
      const Pass nobody_captures(world_.gates.whole, Side::kCall);
      MUST(cuCtxSynchronize());
    }
    note("frees", block, {});
    MUST(cuMemFree(block.p));
  }
  settle(block);
  if (block.graph != nullptr) {
    note("destroys the graph of", block, {});
    MUST(cuGraphExecDestroy(block.graph));
  }
  block.graph = nullptr;
}

// In the order of a stream that has nothing to do with it.
void Worker::free_unused(Block& block) {
  const Pass held = unsafe();
  ++world_.tally.frees;
  const Lease lease = world_.streams.choose(random_);
  const Pass on_legacy = world_.streams.pass(lease);
  const std::unique_lock<std::mutex> no_graphs = world_.streams.apart_unless_beside(lease);
  note("frees unused in order", block, lease);
  MUST(lease.pick(world_.api.cuMemFreeAsync)(block.p, lease.stream));
}

void Worker::free_all() {
  while (!blocks_.empty()) finish_one();
}

bool Worker::order_write(Block& block, const Lease& lease) {
  if (!world_.streams.order(random_, block.writer, lease, scratch_)) return false;
  for (const Mark& reader : block.readers) {
    if (!world_.streams.order(random_, reader, lease, scratch_)) return false;
  }
  return true;
}

bool Worker::order_read(Block& block, const Lease& lease) {
  return world_.streams.order(random_, block.writer, lease, scratch_);
}

void Worker::settle(Block& block) {
  auto drop = [](Mark& mark) {
    if (mark.kind == Mark::kEvent) MUST(cuEventDestroy(mark.event));
    mark = {};
  };
  drop(block.writer);
  for (Mark& reader : block.readers) drop(reader);
  block.readers.clear();
}

// From here on, only this last write matters.
void Worker::wrote(Block& block, const Lease& lease) {
  const bool events = block.writer.kind == Mark::kEvent || !block.readers.empty();
  if (events) {
    const Pass held = unsafe();
    settle(block);
  }
  block.writer = lease.mark;
}

void Worker::fill(Block& block, const Lease& lease) {
  block.value = fresh_value();
  {
    const Pass on_legacy = world_.streams.pass(lease);
    if (options.has(kCopies) && one_in(random_, 4)) {
      MUST(lease.pick(world_.api.cuMemsetD8Async)(block.p, static_cast<unsigned char>(block.value),
                                                  block.bytes, lease.stream));
    } else {
      world_.kernels.fill(block.p, block.bytes, block.value, lease);
    }
  }
  note("filled", block, lease);
  wrote(block, lease);
}

void Worker::check(Block& block, const Lease& lease) {
  {
    const Pass on_legacy = world_.streams.pass(lease);
    world_.kernels.check(block.p, block.bytes, block.value, lease);
    note("checked", block, lease);
  }
  if (lease.mark == block.writer) return;
  if (std::find(block.readers.begin(), block.readers.end(), lease.mark) == block.readers.end()) {
    block.readers.push_back(lease.mark);
  }
}

void Worker::write_one() {
  if (blocks_.empty()) return allocate();
  Block& block = blocks_[below(random_, blocks_.size())];
  const Lease lease = world_.streams.choose(random_);
  if (order_write(block, lease)) fill(block, lease);
}

void Worker::read_one() {
  if (blocks_.empty()) return allocate();
  Block& block = blocks_[below(random_, blocks_.size())];
  const Lease lease = world_.streams.choose(random_);
  if (block.value < 0x100 && order_read(block, lease)) check(block, lease);
}

void Worker::spin() {
  const Lease lease = world_.streams.choose(random_);
  const Pass on_legacy = world_.streams.pass(lease);
  world_.kernels.spin(1000ull << below(random_, 8), lease);
}

}  // namespace torture
