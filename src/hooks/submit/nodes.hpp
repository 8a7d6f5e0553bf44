// Nodes of graphs that copy or set memory. The driver checks their memory when the node is made or changed,
// as it does for a call that does the same at once; so the same check is made here for blocks. Owns nothing.
#pragma once

#include "hooks/submit/operands.hpp"
#include "hooks/submit/room.hpp"

namespace cupool::hooks {

namespace detail {

// Calls `visit(address, bytes)` for the memory that one argument describes, if it describes any, until one
// returns false. CUgraphNodeParams is known to newer toolkits only.
template <typename Visit, typename Argument>
bool visit_node(Visit&& visit, const Argument& argument) {
  if constexpr (std::is_same_v<Argument, const CUDA_MEMCPY3D*>) {
    return for_each_operand<Shape::kBox3D>(visit, argument);
  } else if constexpr (requires { argument->elementSize; }) {
    const auto* const set = argument;
    return set == nullptr || set->width == 0 || set->height == 0 ||
           visit(set->dst,
                 span(set->height, set->pitch, span(set->width, set->elementSize, set->elementSize)));
  } else if constexpr (requires { argument->memcpy.copyParams; }) {
    if (argument == nullptr) return true;
    const CUDA_MEMCPY3D* const copy = &argument->memcpy.copyParams;
    if (argument->type == CU_GRAPH_NODE_TYPE_MEMCPY) return visit_node(visit, copy);
    const auto* const set = &argument->memset;
    return argument->type != CU_GRAPH_NODE_TYPE_MEMSET || visit_node(visit, set);
  } else {
    return true;
  }
}

}  // namespace detail

// The hook of a row that makes or changes a node. `Self` names its entry in the real table.
template <typename Self, typename Function>
struct NodeHook;

template <typename Self, typename... Args>
struct NodeHook<Self, CUresult (*)(Args...)> {
  static CUresult call(Args... args) {
    Owners owners;
    const auto is_good = [&](CUdeviceptr address, uint64_t bytes) {
      return is_plainly_good(address, bytes) || is_good_operand(address, bytes, &owners);
    };
    if (may_have_blocks() && !(detail::visit_node(is_good, args) && ...))
      return tell_forwarded(Self::kCall, CUDA_ERROR_INVALID_VALUE);
    return RoomHook<Self, CUresult (*)(Args...)>::call(args...);
  }
};

}  // namespace cupool::hooks
