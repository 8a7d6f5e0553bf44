// Graphs and their launches. A graph is a list of nodes with dependencies; an executable graph cuts them into
// chains. At launch every node is an operation of its own: the first chain runs in the launching stream, each
// other one in a hidden stream that the executable owns, so that branches run out of step as they may.
// All under the state mutex.
#pragma once

#include <cuda.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/model.hpp"
#include "sim/streams.hpp"

namespace cupool::sim {

struct Graph;

struct GraphNode {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  WorkPtr work;  // null: nothing to do
  std::vector<GraphNode*> after;
  std::shared_ptr<Graph> child;
  bool enabled = true;
};

struct Graph {
  CUgraph handle = nullptr;
  std::uint64_t context_id = 0;
  std::vector<std::unique_ptr<GraphNode>> nodes;

  GraphNode* add(CUgraphNodeType type, WorkPtr work, std::vector<GraphNode*> after);
  bool has(const GraphNode* node) const;
};

struct ExecNode {
  WorkPtr work;
  std::vector<std::size_t> after;
  std::size_t chain = 0;
};

struct GraphExec {
  CUgraphExec handle = nullptr;
  unsigned long long flags = 0;
  std::vector<ExecNode> nodes;                               // in an order that respects the dependencies
  std::unordered_map<const GraphNode*, std::size_t> placed;  // where the graph's own nodes are among them
  std::size_t chains = 1;
  std::uint64_t context_id = 0;     // where the hidden streams are
  std::vector<StreamPtr> branches;  // chain i+1
  VectorClock finished;             // the launch before: an executable never overlaps itself
};

CUresult add_graph_node(const std::shared_ptr<Graph>& graph, CUgraphNode* out, const CUgraphNode* after,
                        std::size_t count, CUgraphNodeType type, WorkPtr work);
// Null when the dependencies form a ring.
std::shared_ptr<GraphExec> instantiate(const Graph& graph);
CUresult launch_graph(const std::shared_ptr<GraphExec>& exec, const StreamPtr& stream);
void drop_branches(GraphExec& exec);

inline CUgraphNode node_handle(GraphNode* node) { return reinterpret_cast<CUgraphNode>(node); }
inline GraphNode* node_of(CUgraphNode handle) { return reinterpret_cast<GraphNode*>(handle); }

}  // namespace cupool::sim
