// Copies and memsets whose memory is there, ends too early or is gone; calls in host functions; launches with
// odd lists.
#include <functional>
#include <thread>
#include <vector>

#include "questions.hpp"

namespace questions {

namespace {

const char kKernels[] =
#include "../victims/kernels.ptx.inc"
    ;

// A copy or memset of `bytes` at `at`; its other side is good.
struct Operation {
  const char* name;
  std::function<CUresult(CUdeviceptr at, size_t bytes)> call;
  bool takes_any_address = false;  // an unknown one is taken for the host's
};

CUDA_MEMCPY2D box(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY2D copy = {};
  copy.dstMemoryType = copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.srcDevice = from;
  copy.WidthInBytes = bytes;
  copy.Height = 1;
  return copy;
}

CUDA_MEMCPY3D cube(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY3D copy = {};
  copy.dstMemoryType = copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.srcDevice = from;
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  return copy;
}

// Two rows, the second of them one byte long: as many bytes from the first to the last.
CUDA_MEMCPY2D two_rows(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY2D copy = box(to, from, 1);
  copy.dstPitch = copy.srcPitch = bytes - 1;
  copy.Height = 2;
  return copy;
}

std::vector<Operation> operations(CUdeviceptr good, void* host, CUstream s) {
  CUcontext context = nullptr;
  MUST(cuCtxGetCurrent(&context));
  return {
      {"cuMemcpyHtoD", [=](CUdeviceptr p, size_t n) { return cuMemcpyHtoD(p, host, n); }},
      {"cuMemcpyHtoDAsync", [=](CUdeviceptr p, size_t n) { return cuMemcpyHtoDAsync(p, host, n, s); }},
      {"cuMemcpyDtoH", [=](CUdeviceptr p, size_t n) { return cuMemcpyDtoH(host, p, n); }},
      {"cuMemcpyDtoHAsync", [=](CUdeviceptr p, size_t n) { return cuMemcpyDtoHAsync(host, p, n, s); }},
      {"cuMemcpyDtoD to", [=](CUdeviceptr p, size_t n) { return cuMemcpyDtoD(p, good, n); }},
      {"cuMemcpyDtoD from", [=](CUdeviceptr p, size_t n) { return cuMemcpyDtoD(good, p, n); }},
      {"cuMemcpyDtoDAsync to", [=](CUdeviceptr p, size_t n) { return cuMemcpyDtoDAsync(p, good, n, s); }},
      {"cuMemcpyDtoDAsync from", [=](CUdeviceptr p, size_t n) { return cuMemcpyDtoDAsync(good, p, n, s); }},
      {"cuMemcpy", [=](CUdeviceptr p, size_t n) { return cuMemcpy(p, good, n); }, true},
      {"cuMemcpyAsync", [=](CUdeviceptr p, size_t n) { return cuMemcpyAsync(good, p, n, s); }, true},
      {"cuMemcpyPeer", [=](CUdeviceptr p, size_t n) { return cuMemcpyPeer(p, context, good, context, n); }},
      {"cuMemcpyPeerAsync",
       [=](CUdeviceptr p, size_t n) { return cuMemcpyPeerAsync(good, context, p, context, n, s); }},
      {"cuMemcpy2D to",
       [=](CUdeviceptr p, size_t n) {
         const CUDA_MEMCPY2D copy = box(p, good, n);
         return cuMemcpy2D(&copy);
       }},
      {"cuMemcpy2DUnaligned from",
       [=](CUdeviceptr p, size_t n) {
         const CUDA_MEMCPY2D copy = box(good, p, n);
         return cuMemcpy2DUnaligned(&copy);
       }},
      {"cuMemcpy2DAsync of two rows",
       [=](CUdeviceptr p, size_t n) {
         const CUDA_MEMCPY2D copy = two_rows(p, good, n);
         return cuMemcpy2DAsync(&copy, s);
       }},
      {"cuMemcpy3D to",
       [=](CUdeviceptr p, size_t n) {
         const CUDA_MEMCPY3D copy = cube(p, good, n);
         return cuMemcpy3D(&copy);
       }},
      {"cuMemcpy3DAsync from",
       [=](CUdeviceptr p, size_t n) {
         const CUDA_MEMCPY3D copy = cube(good, p, n);
         return cuMemcpy3DAsync(&copy, s);
       }},
      {"cuMemcpy3D of two slices, whose height is not given",
       [=](CUdeviceptr p, size_t n) {
         CUDA_MEMCPY3D copy = cube(good, p, 1);
         copy.srcPitch = n - 1;
         copy.dstPitch = n;
         copy.Depth = 2;
         return cuMemcpy3D(&copy);
       }},
      {"cuMemsetD8", [=](CUdeviceptr p, size_t n) { return cuMemsetD8(p, 1, n); }},
      {"cuMemsetD8Async", [=](CUdeviceptr p, size_t n) { return cuMemsetD8Async(p, 1, n, s); }},
      {"cuMemsetD16", [=](CUdeviceptr p, size_t n) { return cuMemsetD16(p, 1, (n + 1) / 2); }},
      {"cuMemsetD16Async", [=](CUdeviceptr p, size_t n) { return cuMemsetD16Async(p, 1, (n + 1) / 2, s); }},
      {"cuMemsetD32", [=](CUdeviceptr p, size_t n) { return cuMemsetD32(p, 1, (n + 3) / 4); }},
      {"cuMemsetD32Async", [=](CUdeviceptr p, size_t n) { return cuMemsetD32Async(p, 1, (n + 3) / 4, s); }},
      {"cuMemsetD2D8", [=](CUdeviceptr p, size_t n) { return cuMemsetD2D8(p, n - 1, 1, 1, 2); }},
      {"cuMemsetD2D8Async", [=](CUdeviceptr p, size_t n) { return cuMemsetD2D8Async(p, n - 1, 1, 1, 2, s); }},
  };
}

// Values that a stream writes and waits for.
void ask_words(const std::string& where, CUdeviceptr at, CUstream stream) {
  CUstreamBatchMemOpParams operation = {};
  operation.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = at;
  operation.writeValue.value = 5;
  say("cuStreamWriteValue32 " + where, cuStreamWriteValue32(stream, at, 5, 0));
  say("cuStreamWriteValue64 " + where, cuStreamWriteValue64(stream, at, 5, 0));
  say("cuStreamWaitValue32 " + where, cuStreamWaitValue32(stream, at, 0, CU_STREAM_WAIT_VALUE_GEQ));
  say("cuStreamWaitValue64 " + where, cuStreamWaitValue64(stream, at, 0, CU_STREAM_WAIT_VALUE_GEQ));
  say("cuStreamBatchMemOp " + where, cuStreamBatchMemOp(stream, 1, &operation, 0));
  MUST(cuStreamSynchronize(stream));
}

void words() {
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (unsigned round = 1; round <= 2; ++round) {
    for (const size_t bytes : {size_t{8}, size_t{4104}, 3 * kMiB + 8, 24 * kMiB + 8}) {
      set_place("values in " + std::to_string(bytes) + ", round " + std::to_string(round) + ": ");
      CUdeviceptr p = 0;
      MUST(cuMemAlloc(&p, bytes));
      MUST(cuMemsetD8(p, 0, bytes));
      MUST(cuCtxSynchronize());
      ask_words("at the start", p, stream);
      ask_words("misaligned", p + 2, stream);
      ask_words("at the end", p + bytes - 8, stream);
      MUST(cuMemFree(p));
      ask_words("after the free", p, stream);
    }
  }
  MUST(cuStreamDestroy(stream));
}

// Nodes of graphs that copy and set `bytes` at `at`; their other side is good.
void ask_nodes(const std::string& where, CUdeviceptr at, size_t bytes, CUdeviceptr good) {
  CUcontext context = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr, set_node = nullptr, copy_node = nullptr;
  MUST(cuCtxGetCurrent(&context));
  MUST(cuGraphCreate(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS set = {};
  set.dst = good;
  set.elementSize = 1;
  set.width = 4;
  set.height = 1;
  CUDA_MEMCPY3D copy = cube(good, good + 4096, 4);
  MUST(cuGraphAddMemsetNode(&set_node, graph, nullptr, 0, &set, context));
  MUST(cuGraphAddMemcpyNode(&copy_node, graph, nullptr, 0, &copy, context));
  MUST(cuGraphInstantiate(&exec, graph, 0));
  set.dst = at;
  set.width = bytes;
  copy = cube(good, at, bytes);
  const CUDA_MEMCPY3D back = cube(at, good, bytes);
  say("cuGraphExecMemsetNodeSetParams " + where,
      cuGraphExecMemsetNodeSetParams(exec, set_node, &set, context));
  say("cuGraphExecMemcpyNodeSetParams " + where,
      cuGraphExecMemcpyNodeSetParams(exec, copy_node, &copy, context));
  say("cuGraphMemsetNodeSetParams " + where, cuGraphMemsetNodeSetParams(set_node, &set));
  say("cuGraphMemcpyNodeSetParams " + where, cuGraphMemcpyNodeSetParams(copy_node, &copy));
  say("cuGraphAddMemsetNode " + where, cuGraphAddMemsetNode(&node, graph, nullptr, 0, &set, context));
  say("cuGraphAddMemcpyNode from " + where, cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
  say("cuGraphAddMemcpyNode to " + where, cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &back, context));
  CUgraphNodeParams any = {};
  any.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  any.memcpy.copyCtx = context;
  any.memcpy.copyParams = copy;
  say("cuGraphAddNode that copies " + where, cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &any));
  say("cuGraphNodeSetParams that copies " + where, cuGraphNodeSetParams(copy_node, &any));
  say("cuGraphExecNodeSetParams that copies " + where, cuGraphExecNodeSetParams(exec, copy_node, &any));
  any = {};
  any.type = CU_GRAPH_NODE_TYPE_MEMSET;
  any.memset.dst = at;
  any.memset.elementSize = 1;
  any.memset.width = bytes;
  any.memset.height = 1;
  any.memset.ctx = context;
  say("cuGraphAddNode that sets " + where, cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &any));
  say("cuGraphNodeSetParams that sets " + where, cuGraphNodeSetParams(set_node, &any));
  say("cuGraphExecNodeSetParams that sets " + where, cuGraphExecNodeSetParams(exec, set_node, &any));
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(graph));
}

void nodes() {
  CUdeviceptr good = 0;
  MUST(cuMemAlloc(&good, 21 * kMiB));
  for (unsigned round = 1; round <= 2; ++round) {
    for (const size_t bytes : {size_t{4604}, 3 * kMiB + 4, 20 * kMiB + 4}) {
      set_place("nodes of " + std::to_string(bytes) + ", round " + std::to_string(round) + ": ");
      CUdeviceptr p = 0, neighbour = 0;
      MUST(cuMemAlloc(&p, bytes));
      MUST(cuMemAlloc(&neighbour, bytes));
      ask_nodes("all of it", p, bytes, good);
      ask_nodes("one past", p + bytes, 1, good);
      ask_nodes("much more", p, bytes + 64 * kMiB, good);
      MUST(cuMemFree(p));
      ask_nodes("after the free", p, 4, good);
      MUST(cuMemFree(neighbour));
    }
  }
  MUST(cuMemFree(good));
}

// On a thread that has none; a stream brings its own along.
void without_context(CUdeviceptr good, CUstream stream) {
  set_place("no current context: ");
  for (const size_t bytes : {size_t{1}, 64 * kMiB}) {
    const std::string how = " of " + std::to_string(bytes);
    say("cuMemsetD8" + how, cuMemsetD8(good, 1, bytes));
    say("cuMemsetD8Async" + how, cuMemsetD8Async(good, 1, bytes, stream));
    say("cuMemcpyDtoD" + how, cuMemcpyDtoD(good, good + kMiB, bytes));
    say("cuMemcpyDtoDAsync" + how, cuMemcpyDtoDAsync(good, good + kMiB, bytes, stream));
  }
}

void bad_operands() {
  constexpr size_t kSizesHere[] = {4, 512, 4608, 32768, 1 * kMiB + 4, 20 * kMiB};
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr good = 0;
  void* host = nullptr;
  MUST(cuMemAlloc(&good, 21 * kMiB));
  MUST(cuMemAllocHost(&host, 21 * kMiB));
  const std::vector<Operation> all = operations(good, host, stream);
  for (unsigned round = 1; round <= 2; ++round) {
    for (const size_t bytes : kSizesHere) {
      set_place("operand of " + std::to_string(bytes) + ", round " + std::to_string(round) + ": ");
      CUdeviceptr p = 0, neighbour = 0;
      MUST(cuMemAlloc(&p, bytes));
      MUST(cuMemAlloc(&neighbour, bytes));
      for (const Operation& one : all) {
        const std::string name = one.name;
        say(name + " all of it", one.call(p, bytes));
        say(name + " one byte more", one.call(p, bytes + 1));
        say(name + " from inside", one.call(p + bytes / 2, bytes - bytes / 2));
        say(name + " from inside, one byte more", one.call(p + bytes / 2, bytes - bytes / 2 + 1));
        say(name + " much more", one.call(p, bytes + 64 * kMiB));
      }
      MUST(cuStreamSynchronize(stream));
      MUST(cuMemFree(p));
      for (const Operation& one : all) {
        if (!one.takes_any_address) say(std::string(one.name) + " after the free", one.call(p, 2));
      }
      say("nothing at all, after the free", cuMemsetD8(p, 1, 0));
      MUST(cuMemFree(neighbour));
    }
  }
  set_place("operand of a batch: ");
  CUdeviceptr p = 0;
  MUST(cuMemAlloc(&p, 4608));
  for (const size_t bytes : {size_t{4608}, size_t{4609}}) {
    CUdeviceptr to[] = {good, good + 8192};
    CUdeviceptr from[] = {p, p};
    size_t sizes[] = {16, bytes};
    CUmemcpyAttributes attributes = {};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    size_t first = 0;
    say("cuMemcpyBatchAsync of " + std::to_string(bytes),
        cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &first, 1, stream));
  }
  // In a capture an operand that is a byte too long is refused or taken as the driver's memory happens to
  // lie: there is nothing to hold the pool's answer against.
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemFree(p));
  std::thread(without_context, good, stream).join();
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemFree(good));
  MUST(cuMemFreeHost(host));
  MUST(cuStreamDestroy(stream));
}

// What the driver says to calls in a host function; told afterwards.
struct Inside {
  CUdeviceptr device_block = 0;
  CUdeviceptr managed_block = 0;
  CUdeviceptr shared_block = 0;
  CUstream other = nullptr;
  std::vector<std::pair<const char*, CUresult>> answers;
};

void CUDA_CB ask_inside(void* data) {
  Inside& inside = *static_cast<Inside*>(data);
  CUdeviceptr p = 0;
  size_t pitch = 0;
  const auto note = [&](const char* call, CUresult code) { inside.answers.emplace_back(call, code); };
  note("cuMemFree", cuMemFree(inside.device_block));
  note("cuMemAlloc", cuMemAlloc(&p, 4096));
  note("cuMemFree again", cuMemFree(inside.device_block));
  note("cuMemFree of managed memory", cuMemFree(inside.managed_block));
  note("cuMemAllocPitch", cuMemAllocPitch(&p, &pitch, 100, 10, 4));
  note("cuMemAllocManaged", cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
  CUipcMemHandle handle = {};
  note("cuIpcGetMemHandle", cuIpcGetMemHandle(&handle, inside.device_block));
  note("cuIpcGetMemHandle of one that is shared", cuIpcGetMemHandle(&handle, inside.shared_block));
  for (const size_t bytes : {size_t{1}, 64 * kMiB}) {
    note(bytes == 1 ? "cuMemsetD8Async" : "cuMemsetD8Async too far",
         cuMemsetD8Async(inside.device_block, 1, bytes, inside.other));
    note(bytes == 1 ? "cuMemcpyDtoDAsync" : "cuMemcpyDtoDAsync too far",
         cuMemcpyDtoDAsync(inside.device_block, inside.shared_block, bytes, inside.other));
  }
}

void host_functions() {
  CUstream stream = nullptr;
  Inside common;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&common.other, CU_STREAM_NON_BLOCKING));
  for (const size_t bytes : {size_t{4096}, size_t{3 * kMiB}, 20 * kMiB + 1}) {
    for (const bool in_graph : {false, true}) {
      set_place(std::string(in_graph ? "host node" : "host function") + ", size " + std::to_string(bytes) +
                ": ");
      Inside inside = common;
      CUdeviceptr warm = 0;
      CUipcMemHandle handle = {};
      MUST(cuMemAlloc(&warm, bytes));
      MUST(cuMemAlloc(&inside.shared_block, bytes));
      say("cuIpcGetMemHandle before", cuIpcGetMemHandle(&handle, inside.shared_block));
      MUST(cuMemAlloc(&inside.device_block, bytes));
      MUST(cuMemFree(warm));
      MUST(cuMemAllocManaged(&inside.managed_block, bytes, CU_MEM_ATTACH_GLOBAL));
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      if (in_graph) MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
      say("cuLaunchHostFunc", cuLaunchHostFunc(stream, ask_inside, &inside));
      if (in_graph) {
        MUST(cuStreamEndCapture(stream, &graph));
        MUST(cuGraphInstantiate(&exec, graph, 0));
        MUST(cuGraphLaunch(exec, stream));
      }
      MUST(cuStreamSynchronize(stream));
      for (const auto& [call, code] : inside.answers) say(call, code);
      MUST(cuStreamSynchronize(inside.other));
      std::thread([&] {
        say("cuIpcGetMemHandle without a context", cuIpcGetMemHandle(&handle, inside.device_block));
        say("cuIpcGetMemHandle of one that is shared, without a context",
            cuIpcGetMemHandle(&handle, inside.shared_block));
      }).join();
      MUST(cuMemFree(inside.shared_block));
      ask_range("afterwards", inside.device_block, inside.device_block);
      say("cuMemFree afterwards", cuMemFree(inside.device_block));
      say("cuMemFree of managed memory afterwards", cuMemFree(inside.managed_block));
      say("cuMemFree once more", cuMemFree(inside.device_block));
      if (in_graph) MUST(cuGraphExecDestroy(exec));
      if (in_graph) MUST(cuGraphDestroy(graph));
    }
  }
  MUST(cuStreamDestroy(common.other));
  MUST(cuStreamDestroy(stream));
}

void launches() {
  set_place("launch: ");
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  MUST(cuModuleLoadData(&module, kKernels));
  MUST(cuModuleGetFunction(&spin, module, "spin"));
  unsigned long long ns = 1;
  void* parameters[] = {&ns};
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  say("cuLaunchKernelEx", cuLaunchKernelEx(&config, spin, parameters, nullptr));
  config.numAttrs = 1;
  say("cuLaunchKernelEx with a count and no list", cuLaunchKernelEx(&config, spin, parameters, nullptr));
  MUST(cuCtxSynchronize());
  MUST(cuModuleUnload(module));
}

}  // namespace

void about_work() {
  launches();
  bad_operands();
  words();
  nodes();
  host_functions();
  set_place("");
}

}  // namespace questions
