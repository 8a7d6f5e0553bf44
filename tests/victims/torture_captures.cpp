// Captures in all three modes, the graphs they make, and what may be done meanwhile. A graph belongs to a
// block: it fills the block with a value of its own and checks it, and may run again as long as the block
// lives.
#include "torture_worker.hpp"

namespace torture {

namespace {

// A capture that is ended whatever happens, so that a fault in one thread does not stop the others.
class Capture {
 public:
  Capture(CUstream stream, CUstreamCaptureMode mode) : stream_(stream) {
    MUST(cuStreamBeginCapture(stream, mode));
  }
  Capture(const Capture&) = delete;
  ~Capture() {
    CUgraph graph = nullptr;
    if (open_ && cuStreamEndCapture(stream_, &graph) == CUDA_SUCCESS) cuGraphDestroy(graph);
  }
  CUgraph end() {
    CUgraph graph = nullptr;
    MUST(cuStreamEndCapture(stream_, &graph));
    open_ = false;
    return graph;
  }

 private:
  CUstream stream_;
  bool open_ = true;
};

constexpr CUstreamCaptureMode kModes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                          CU_STREAM_CAPTURE_MODE_RELAXED};
constexpr const char* kModeNames[] = {"begins a global capture", "begins a thread-local capture",
                                      "begins a relaxed capture"};

}  // namespace

// The captured work: fill, check, and perhaps a second check on a branch that joins again.
void Worker::capture_work(Block& block, const Lease& lease, const Lease* branch) {
  const Kernels& kernels = world_.kernels;
  kernels.fill(block.p, block.bytes, block.graph_value, lease);
  if (branch != nullptr) {
    MUST(lease.pick(world_.api.cuEventRecord)(scratch_, lease.stream));
    MUST(branch->pick(world_.api.cuStreamWaitEvent)(branch->stream, scratch_, 0));
    kernels.spin(4000, *branch);
    kernels.check(block.p, block.bytes, block.graph_value, *branch);
  }
  kernels.check(block.p, block.bytes, block.graph_value, lease);
  if (branch != nullptr) {
    MUST(branch->pick(world_.api.cuEventRecord)(scratch_, branch->stream));
    MUST(lease.pick(world_.api.cuStreamWaitEvent)(lease.stream, scratch_, 0));
  }
}

// A capture in relaxed mode allows allocation. What is freed here has its work queued elsewhere.
void Worker::capture_and_allocate(const Lease& lease, bool graph_is_dropped) {
  const Pass held = Pass::attempt(world_.gates.unsafe, Side::kCall);
  if (!held) return;
  Block block;
  block.bytes = random_size();
  block.place = world_.place;
  const CUresult result = cuMemAlloc(&block.p, block.bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return;
  must(result, "allocation in a relaxed capture");
  // Only in a graph that never runs: a later launch would not be ordered with what else happens to this
  // block.
  if (graph_is_dropped) world_.kernels.fill(block.p, block.bytes, fresh_value(), lease);
  block.value = 0x100;
  note("allocates in a capture", block, lease);
  ++world_.tally.allocations;
  live_ += block.bytes;
  blocks_.push_back(block);
  if (one_in(random_, 2)) {
    Block old = take_any();
    if (old.p == block.p || old.graph != nullptr || old.pooled || old.writer.kind == Mark::kEvent ||
        !old.readers.empty() || old.place != world_.place) {
      live_ += old.bytes;
      blocks_.push_back(std::move(old));
    } else {
      note("frees in a capture", old, lease);
      MUST(cuMemFree(old.p));
      ++world_.tally.frees;
    }
  }
}

void Worker::capture() {
  if (blocks_.empty()) return allocate();
  Block block = take_any();
  const CUstreamCaptureMode mode = kModes[below(random_, 3)];
  std::optional<Lease> lease = world_.streams.choose_alone(random_, true);
  std::optional<Lease> branch = world_.streams.choose_alone(random_, false);
  CUgraph graph = nullptr;
  Block* own = nullptr;
  if (lease) {
    if (lease->mark.kind == Mark::kOwn) lease->stream = CU_STREAM_PER_THREAD;
    const bool blocking = lease->blocking || (branch && branch->blocking);
    const Pass all =
        mode == CU_STREAM_CAPTURE_MODE_GLOBAL ? Pass(world_.gates.unsafe, Side::kCapture) : Pass();
    const Pass legacy = blocking ? Pass(world_.gates.legacy, Side::kCapture) : Pass();
    const Pass whole(world_.gates.whole, Side::kCapture);
    if (block.graph == nullptr) {
      block.graph_value = fresh_value();
      own = &block;
    }
    History::note({0, kModeNames[mode], 0, 0, 0, lease->mark, branch ? branch->mark : Mark{}});
    Capture capture(lease->stream, mode);
    if (own != nullptr) capture_work(block, *lease, branch ? &*branch : nullptr);
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) capture_and_allocate(*lease, own == nullptr);
    graph = capture.end();
    History::note({0, "ends a capture", 0, 0, 0, lease->mark, {}});
  }
  branch.reset();
  lease.reset();
  live_ += block.bytes;
  blocks_.push_back(std::move(block));
  if (graph == nullptr) return;
  Block& kept = blocks_.back();
  {
    const Pass held = unsafe();
    if (own != nullptr) MUST(cuGraphInstantiate(&kept.graph, graph, 0));
    MUST(cuGraphDestroy(graph));
  }
  ++world_.tally.graphs;
  if (own != nullptr) launch_graph(kept);
}

void Worker::launch_graph(Block& block) {
  const Lease lease = world_.streams.choose(random_);
  if (!order_write(block, lease)) return;
  {
    const Pass on_legacy = world_.streams.pass(lease);
    const std::unique_lock<std::mutex> no_waits = world_.streams.apart(lease);
    MUST(lease.pick(world_.api.cuGraphLaunch)(block.graph, lease.stream));
  }
  block.value = block.graph_value;
  note("launched the graph of", block, lease);
  wrote(block, lease);
}

void Worker::relaunch() {
  for (Block& block : blocks_) {
    if (block.graph == nullptr || one_in(random_, 2)) continue;
    launch_graph(block);
    if (one_in(random_, 2)) return;
  }
}

// A context of its own, used for a moment and destroyed with memory in it and work queued.
void Worker::second_context() {
  const Pass held = unsafe();
  CUcontext context = nullptr;
  MUST(cuCtxCreate(&context, nullptr, 0, world_.device));
  bool right = true;
  try {
    Kernels kernels(world_.api);
    kernels.load();
    CUstream stream = nullptr;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    Lease other;
    other.stream = stream;
    const Lease legacy;
    for (unsigned i = 0; i < 12; ++i) {
      const Lease& lease = one_in(random_, 2) ? other : legacy;
      const std::uint64_t bytes = random_size();
      CUdeviceptr p = 0;
      if (cuMemAlloc(&p, bytes) != CUDA_SUCCESS) break;
      const unsigned value = fresh_value();
      kernels.fill(p, bytes, value, lease);
      kernels.check(p, bytes, value, lease);
      if (!one_in(random_, 6)) MUST(cuMemFree(p));
    }
    if (const auto wrong = kernels.verdict()) right = *wrong == 0;
    CUdeviceptr p = 0;
    if (cuMemAlloc(&p, 512) == CUDA_SUCCESS) kernels.fill(p, 512, 1, other);
  } catch (const Stop&) {
    cuCtxDestroy(context);
    cuCtxSetCurrent(world_.context);
    throw;
  }
  MUST(cuCtxDestroy(context));
  MUST(cuCtxSetCurrent(world_.context));
  if (!right) ++world_.tally.wrong;
}

}  // namespace torture
