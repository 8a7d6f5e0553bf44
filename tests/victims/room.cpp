// Victim: takes nearly all memory of the device, frees all of it, and then lets the driver itself need
// memory: for the stack of a kernel, for the device heap, for memory nodes of a graph. Prints ok.
#include <cstring>
#include <vector>

#include "linked_api.hpp"
#include "victim.hpp"

namespace {

CUfunction kernel(const char* name) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  VICTIM_CHECK(cuModuleLoadData(&module, victim::kKernels));
  VICTIM_CHECK(cuModuleGetFunction(&function, module, name));
  return function;
}

// In ever smaller blocks, until the driver has less left than any of the cases needs.
void take_and_free_nearly_all() {
  std::vector<CUdeviceptr> blocks;
  for (size_t bytes = size_t{1} << 36; bytes >= size_t{2} << 20;) {
    CUdeviceptr block = 0;
    if (cuMemAlloc(&block, bytes) == CUDA_SUCCESS) {
      blocks.push_back(block);
    } else {
      bytes /= 2;
    }
  }
  for (CUdeviceptr block : blocks) VICTIM_CHECK(cuMemFree(block));
}

int launch(CUfunction function, CUdeviceptr out) {
  unsigned value = 3;
  void* parameters[] = {&out, &value};
  VICTIM_CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
  unsigned char written = 0;
  VICTIM_CHECK(cuMemcpyDtoH(&written, out, 1));
  return written == 1 ? 0 : 1;
}

int use_graph() {
  constexpr size_t kBytes = size_t{64} << 20;
  CUgraph graph = nullptr;
  CUgraphNode taken = nullptr, set = nullptr, freed = nullptr;
  CUgraphExec exec = nullptr;
  CUcontext context = nullptr;
  VICTIM_CHECK(cuCtxGetCurrent(&context));
  VICTIM_CHECK(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS memory = {};
  memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  memory.bytesize = kBytes;
  VICTIM_CHECK(cuGraphAddMemAllocNode(&taken, graph, nullptr, 0, &memory));
  CUDA_MEMSET_NODE_PARAMS fill = {};
  fill.dst = memory.dptr;
  fill.value = 7;
  fill.elementSize = 1;
  fill.width = kBytes;
  fill.height = 1;
  VICTIM_CHECK(cuGraphAddMemsetNode(&set, graph, &taken, 1, &fill, context));
  VICTIM_CHECK(cuGraphAddMemFreeNode(&freed, graph, &set, 1, memory.dptr));
  VICTIM_CHECK(cuGraphInstantiate(&exec, graph, 0));
  VICTIM_CHECK(cuGraphLaunch(exec, nullptr));
  VICTIM_CHECK(cuCtxSynchronize());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  victim::Device device(victim::linked_api());
  const CUdeviceptr out = device.alloc(512);
  VICTIM_CHECK(cuMemsetD8(out, 0, 512));
  CUfunction const deep = kernel("deep");
  CUfunction const heap = kernel("heap");
  take_and_free_nearly_all();
  int wrong = 1;
  if (std::strcmp(what, "stack") == 0) {
    wrong = launch(deep, out);
  } else if (std::strcmp(what, "heap") == 0) {
    VICTIM_CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, size_t{256} << 20));
    wrong = launch(heap, out);
  } else if (std::strcmp(what, "graph") == 0) {
    wrong = use_graph();
  } else {
    std::fprintf(stderr, "usage: room stack|heap|graph\n");
    return 2;
  }
  if (wrong == 0) std::printf("ok\n");
  return wrong;
}
