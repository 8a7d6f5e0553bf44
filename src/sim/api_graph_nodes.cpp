// Entry points for nodes of graphs that copy and set memory. Their memory must be there when they are made or
// changed, as the real driver was seen to demand.
#include <cuda.h>

#include <utility>

#include "sim/copies.hpp"
#include "sim/entry.hpp"
#include "sim/graphs.hpp"

using namespace cupool::sim;

namespace {

int device_of(CUcontext context) {
  const auto owner = state().contexts.find(context);
  return owner != nullptr ? owner->device : 0;
}

WorkPtr work_of(const CUDA_MEMCPY3D* copy, CUcontext context) {
  return copy == nullptr ? nullptr : copy_node_work("memcpy node", device_of(context), *copy);
}

template <typename Params>
WorkPtr work_of(const Params* p, CUcontext context) {
  if (p == nullptr) return nullptr;
  return memset_work("memset node", device_of(context), p->dst, p->pitch, p->value, p->elementSize, p->width,
                     p->height);
}

CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, size_t count, CUgraphNodeType type,
             WorkPtr work) {
  const auto graph = state().graphs.find(handle);
  if (graph == nullptr || work == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_graph_node(graph, out, after, count, type, std::move(work));
}

CUresult set(CUgraphNode node, CUgraphNodeType type, WorkPtr work) {
  if (node == nullptr || work == nullptr || node_of(node)->type != type) return CUDA_ERROR_INVALID_VALUE;
  node_of(node)->work = std::move(work);
  return CUDA_SUCCESS;
}

CUresult set(CUgraphExec handle, CUgraphNode node, WorkPtr work) {
  const auto exec = state().graph_execs.find(handle);
  if (exec == nullptr || node == nullptr || work == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = exec->placed.find(node_of(node));
  if (found == exec->placed.end()) return CUDA_ERROR_INVALID_VALUE;
  exec->nodes[found->second].work = std::move(work);
  return CUDA_SUCCESS;
}

// Of the kinds of nodes that the general calls can make, these two are enough here.
WorkPtr work_of(const CUgraphNodeParams& params) {
  if (params.type == CU_GRAPH_NODE_TYPE_MEMCPY)
    return work_of(&params.memcpy.copyParams, params.memcpy.copyCtx);
  return work_of(&params.memset, params.memset.ctx);
}
bool is_known(const CUgraphNodeParams* params) {
  return params != nullptr &&
         (params->type == CU_GRAPH_NODE_TYPE_MEMCPY || params->type == CU_GRAPH_NODE_TYPE_MEMSET);
}

CUresult add_any(Site& site, CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count,
                 const CUgraphNodeParams* params) {
  return in_driver(site, [&] {
    return is_known(params) ? add(out, graph, after, count, params->type, work_of(*params))
                            : CUDA_ERROR_NOT_SUPPORTED;
  });
}

}  // namespace

extern "C" {

CUresult cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count,
                              const CUDA_MEMCPY3D* copy, CUcontext context) {
  return in_driver(SIM_SITE(cuGraphAddMemcpyNode), [&] {
    return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_MEMCPY, work_of(copy, context));
  });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context) {
  return in_driver(SIM_SITE(cuGraphAddMemsetNode), [&] {
    return add(out, graph, after, count, CU_GRAPH_NODE_TYPE_MEMSET, work_of(params, context));
  });
}

CUresult cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count,
                        CUgraphNodeParams* params) {
  return add_any(SIM_SITE(cuGraphAddNode), out, graph, after, count, params);
}

CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData*,
                           size_t count, CUgraphNodeParams* params) {
  return add_any(SIM_SITE(cuGraphAddNode_v2), out, graph, after, count, params);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* copy) {
  return in_driver(SIM_SITE(cuGraphMemcpyNodeSetParams),
                   [&] { return set(node, CU_GRAPH_NODE_TYPE_MEMCPY, work_of(copy, nullptr)); });
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params) {
  return in_driver(SIM_SITE(cuGraphMemsetNodeSetParams),
                   [&] { return set(node, CU_GRAPH_NODE_TYPE_MEMSET, work_of(params, nullptr)); });
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* params) {
  return in_driver(SIM_SITE(cuGraphNodeSetParams), [&] {
    return is_known(params) ? set(node, params->type, work_of(*params)) : CUDA_ERROR_NOT_SUPPORTED;
  });
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* copy,
                                        CUcontext context) {
  return in_driver(SIM_SITE(cuGraphExecMemcpyNodeSetParams),
                   [&] { return set(exec, node, work_of(copy, context)); });
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context) {
  return in_driver(SIM_SITE(cuGraphExecMemsetNodeSetParams),
                   [&] { return set(exec, node, work_of(params, context)); });
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* params) {
  return in_driver(SIM_SITE(cuGraphExecNodeSetParams), [&] {
    return is_known(params) ? set(exec, node, work_of(*params)) : CUDA_ERROR_NOT_SUPPORTED;
  });
}

}  // extern "C"
