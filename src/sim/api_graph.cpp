// Entry points for graphs built by hand or by capture: nodes, instantiation, launch.
// Launching is graphs.*'s work; here are arguments, nodes and handles.
#include <cuda.h>
#include <sched.h>

#include <utility>

#include "sim/copies.hpp"
#include "sim/entry.hpp"
#include "sim/graphs.hpp"
#include "sim/kernels.hpp"

using namespace cupool::sim;

namespace {

// A launch or an upload takes a while, in which other threads call the driver. As on a real one, a wait that
// one of them makes for the same stream is lost.
class Arrival {
 public:
  explicit Arrival(StreamPtr stream) : stream_(std::move(stream)) {
    ++stream_->graphs_arriving;
    state().mutex.unlock();
    for (int i = 0; i < kYields; ++i) sched_yield();
    state().mutex.lock();
  }
  ~Arrival() { --stream_->graphs_arriving; }
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

 private:
  static constexpr int kYields = 3;
  const StreamPtr stream_;
};

template <typename Body>
CUresult with_graph(Site& site, CUgraph handle, Body&& body) {
  return in_driver(site, [&]() -> CUresult {
    const auto graph = state().graphs.find(handle);
    return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : body(graph);
  });
}

CUresult make_exec(Site& site, CUgraphExec* out, CUgraph handle, unsigned long long flags) {
  return with_graph(site, handle, [&](const std::shared_ptr<Graph>& graph) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto exec = instantiate(*graph);
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    exec->flags = flags;
    exec->handle = state().graph_execs.insert(exec);
    *out = exec->handle;
    return CUDA_SUCCESS;
  });
}

template <typename Params>
CUresult add_kernel(Site& site, CUgraphNode* out, CUgraph handle, const CUgraphNode* after, size_t count,
                    const Params* params) {
  return with_graph(site, handle, [&](const std::shared_ptr<Graph>& graph) -> CUresult {
    if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto function = state().functions.find(params->func);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    ContextPtr context = state().context_by_id(function->context_id);
    if (context == nullptr && current_context(context) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_CONTEXT;
    auto work = kernel_work(function->kernel, params->kernelParams, *context);
    if (work == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return add_graph_node(graph, out, after, count, CU_GRAPH_NODE_TYPE_KERNEL, std::move(work));
  });
}

}  // namespace

extern "C" {

CUresult cuGraphCreate(CUgraph* out, unsigned int flags) {
  return in_driver(SIM_SITE(cuGraphCreate), [&]() -> CUresult {
    if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    auto graph = std::make_shared<Graph>();
    graph->handle = state().graphs.insert(graph);
    *out = graph->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph handle) {
  return with_graph(SIM_SITE(cuGraphDestroy), handle, [&](const std::shared_ptr<Graph>&) {
    state().graphs.remove(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, size_t count) {
  return with_graph(SIM_SITE(cuGraphAddEmptyNode), handle, [&](const std::shared_ptr<Graph>& graph) {
    return add_graph_node(graph, out, after, count, CU_GRAPH_NODE_TYPE_EMPTY, nullptr);
  });
}

CUresult cuGraphAddKernelNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return add_kernel(SIM_SITE(cuGraphAddKernelNode), out, handle, after, count, params);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* params) {
  return add_kernel(SIM_SITE(cuGraphAddKernelNode_v2), out, handle, after, count, params);
}

CUresult cuGraphAddHostNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, size_t count,
                            const CUDA_HOST_NODE_PARAMS* params) {
  return with_graph(
      SIM_SITE(cuGraphAddHostNode), handle, [&](const std::shared_ptr<Graph>& graph) -> CUresult {
        if (params == nullptr || params->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
        auto work = std::make_shared<Work>();
        work->what = "host node";
        work->host = [function = params->fn, data = params->userData] { function(data); };
        return add_graph_node(graph, out, after, count, CU_GRAPH_NODE_TYPE_HOST, std::move(work));
      });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, size_t count,
                                  CUgraph child_handle) {
  return with_graph(
      SIM_SITE(cuGraphAddChildGraphNode), handle, [&](const std::shared_ptr<Graph>& graph) -> CUresult {
        const auto child = state().graphs.find(child_handle);
        if (child == nullptr || child == graph) return CUDA_ERROR_INVALID_VALUE;
        const CUresult result = add_graph_node(graph, out, after, count, CU_GRAPH_NODE_TYPE_GRAPH, nullptr);
        if (result == CUDA_SUCCESS) node_of(*out)->child = child;
        return result;
      });
}

// The memory of a node is taken when it is added and stays until the context ends: a simplification that is
// enough to run out of it.
CUresult cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  return with_graph(SIM_SITE(cuGraphAddMemAllocNode), handle,
                    [&](const std::shared_ptr<Graph>& graph) -> CUresult {
                      if (params == nullptr || params->bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
                      ContextPtr context;
                      const CUresult found = current_context(context);
                      if (found != CUDA_SUCCESS) return found;
                      const Allocation* const made =
                          state().allocations.create(*context, params->bytesize, MemoryKind::kDevice);
                      if (made == nullptr) {
                        note_refusal();
                        return CUDA_ERROR_OUT_OF_MEMORY;
                      }
                      const CUdeviceptr base = made->base;
                      const CUresult result =
                          add_graph_node(graph, out, after, count, CU_GRAPH_NODE_TYPE_MEM_ALLOC, nullptr);
                      if (result == CUDA_SUCCESS) params->dptr = base;
                      return result;
                    });
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, size_t count,
                               CUdeviceptr) {
  return with_graph(SIM_SITE(cuGraphAddMemFreeNode), handle, [&](const std::shared_ptr<Graph>& graph) {
    return add_graph_node(graph, out, after, count, CU_GRAPH_NODE_TYPE_MEM_FREE, nullptr);
  });
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  return with_graph(SIM_SITE(cuGraphGetNodes), handle, [&](const std::shared_ptr<Graph>& graph) -> CUresult {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const size_t have = graph->nodes.size();
    if (nodes != nullptr) {
      for (size_t i = 0; i < *count; ++i) nodes[i] = i < have ? node_handle(graph->nodes[i].get()) : nullptr;
    }
    if (nodes == nullptr || *count > have) *count = have;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  return in_driver(SIM_SITE(cuGraphNodeGetType), [&]() -> CUresult {
    if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *type = node_of(node)->type;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  return make_exec(SIM_SITE(cuGraphInstantiateWithFlags), out, graph, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode*, char* log, size_t log_size) {
  if (log != nullptr && log_size > 0) log[0] = '\0';
  return make_exec(SIM_SITE(cuGraphInstantiate_v2), out, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* node, char* log, size_t log_size) {
  const CUresult injected = SIM_SITE(cuGraphInstantiate).enter();
  return injected != CUDA_SUCCESS ? injected : cuGraphInstantiate_v2(out, graph, node, log, log_size);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  const unsigned long long flags = params != nullptr ? params->flags : 0;
  CUresult result = make_exec(SIM_SITE(cuGraphInstantiateWithParams), out, graph, flags);
  if (result == CUDA_SUCCESS && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)
    result = cuGraphUpload(*out, params->hUploadStream);
  if (params != nullptr) {
    params->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  }
  return result;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  return in_driver(SIM_SITE(cuGraphExecGetFlags), [&]() -> CUresult {
    const auto exec = state().graph_execs.find(handle);
    if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return in_driver(SIM_SITE(cuGraphExecDestroy), [&]() -> CUresult {
    const auto exec = state().graph_execs.remove(handle);
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (state().context_by_id(exec->context_id) != nullptr) drop_branches(*exec);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return on_stream(SIM_SITE(cuGraphLaunch), stream_handle, [&](const StreamPtr& stream) -> CUresult {
    const Arrival under_way(stream);
    const auto exec = state().graph_execs.find(handle);
    return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : launch_graph(exec, stream);
  });
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  return on_stream(SIM_SITE(cuGraphUpload), stream_handle, [&](const StreamPtr& stream) -> CUresult {
    const Arrival under_way(stream);
    if (state().graph_execs.find(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto work = std::make_shared<Work>();
    work->what = "graph upload";
    return submit(stream, std::move(work));
  });
}

}  // extern "C"
