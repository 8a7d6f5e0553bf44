// Cutting a graph into chains and launching it. A node continues the chain of the first dependency that ends
// one, else it opens a chain of its own. Under the state mutex.
#include "sim/graphs.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "sim/capture.hpp"
#include "sim/state.hpp"

namespace cupool::sim {
namespace {

std::shared_ptr<Work> marker(const char* what) {
  auto work = std::make_shared<Work>();
  work->what = what;
  return work;
}

WorkPtr beginning(const GraphExec& exec) {
  const auto work = marker("graph begin");
  if (!state().added_waits.has_any_to_judge()) return work;
  for (const ExecNode& node : exec.nodes) {
    work->brings.insert(work->brings.end(), node.work->touches.begin(), node.work->touches.end());
  }
  return work;
}

// Places `node` after its dependencies; false on a ring. A child graph stands for all its own nodes.
class Flattener {
 public:
  explicit Flattener(GraphExec& exec) : exec_(exec) {}

  bool add_graph(const Graph& graph, const std::vector<std::size_t>& entry) {
    for (const auto& node : graph.nodes) {
      if (!place(*node, entry)) return false;
    }
    return true;
  }

 private:
  bool place(const GraphNode& node, const std::vector<std::size_t>& entry) {
    const auto known = state_.find(&node);
    if (known != state_.end()) return known->second != kOpen;
    state_[&node] = kOpen;
    std::vector<std::size_t> after = entry;
    for (const GraphNode* dependency : node.after) {
      if (!place(*dependency, entry)) return false;
      after.push_back(state_[dependency]);
    }
    WorkPtr work = node.enabled ? node.work : nullptr;
    if (node.child != nullptr) {
      const std::size_t begin = push(marker("child graph begin"), after);
      const std::size_t first = exec_.nodes.size();
      if (!add_graph(*node.child, {begin})) return false;
      after.assign(1, begin);
      for (std::size_t i = first; i < exec_.nodes.size(); ++i) after.push_back(i);
      work = nullptr;
    }
    const std::size_t index = push(work != nullptr ? work : marker("empty node"), after);
    state_[&node] = index;
    exec_.placed[&node] = index;
    return true;
  }

  std::size_t push(WorkPtr work, std::vector<std::size_t> after) {
    const std::size_t index = exec_.nodes.size();
    std::size_t chain = SIZE_MAX;
    for (const std::size_t dependency : after) {
      const std::size_t candidate = exec_.nodes[dependency].chain;
      if (last_[candidate] == dependency) {
        chain = candidate;
        break;
      }
    }
    if (chain == SIZE_MAX) {
      chain = last_.size();
      last_.push_back(index);
    }
    last_[chain] = index;
    exec_.nodes.push_back(ExecNode{std::move(work), std::move(after), chain});
    return index;
  }

  static constexpr std::size_t kOpen = SIZE_MAX;
  GraphExec& exec_;
  std::unordered_map<const GraphNode*, std::size_t> state_;
  std::vector<std::size_t> last_;  // last node of each chain
};

CUresult launch_into_capture(const GraphExec& exec, Stream& stream) {
  std::vector<GraphNode*> made;
  const std::vector<GraphNode*> entry = stream.capture_tips;
  for (const ExecNode& node : exec.nodes) {
    std::vector<GraphNode*> after = entry;
    for (const std::size_t i : node.after) after.push_back(made[i]);
    made.push_back(capture_graph(stream)->add(CU_GRAPH_NODE_TYPE_EMPTY, node.work, std::move(after)));
  }
  if (!made.empty()) stream.capture_tips = std::move(made);
  return CUDA_SUCCESS;
}

}  // namespace

GraphNode* Graph::add(CUgraphNodeType type, WorkPtr work, std::vector<GraphNode*> after) {
  auto node = std::make_unique<GraphNode>();
  node->type = type;
  node->work = std::move(work);
  node->after = std::move(after);
  nodes.push_back(std::move(node));
  return nodes.back().get();
}

bool Graph::has(const GraphNode* node) const {
  return std::any_of(nodes.begin(), nodes.end(), [&](const auto& one) { return one.get() == node; });
}

std::shared_ptr<GraphExec> instantiate(const Graph& graph) {
  auto exec = std::make_shared<GraphExec>();
  Flattener flat(*exec);
  if (!flat.add_graph(graph, {})) return nullptr;
  for (const ExecNode& node : exec->nodes) exec->chains = std::max(exec->chains, node.chain + 1);
  return exec;
}

CUresult launch_graph(const std::shared_ptr<GraphExec>& exec, const StreamPtr& stream) {
  const CUresult open = check_submission(*stream);
  if (open != CUDA_SUCCESS) return open;
  if (stream->capture != nullptr) {
    const CUresult valid = check_capture(*stream);
    return valid != CUDA_SUCCESS ? valid : launch_into_capture(*exec, *stream);
  }
  Context& context = *stream->context;
  if (exec->context_id != context.id) {
    drop_branches(*exec);
    exec->context_id = context.id;
  }
  while (exec->branches.size() + 1 < exec->chains) {
    exec->branches.push_back(create_stream(context, StreamKind::kHidden, CU_STREAM_NON_BLOCKING, 0));
  }
  const std::vector<StreamPtr> branches =
      exec->branches;  // the executable may be destroyed while a queue is long
  enqueue(stream, beginning(*exec), exec->finished);
  const VectorClock begun = stream->clock;
  std::vector<VectorClock> clocks;
  VectorClock all;
  for (const ExecNode& node : exec->nodes) {
    VectorClock after = begun;
    for (const std::size_t i : node.after) after.join(clocks[i]);
    const StreamPtr& where = node.chain == 0 ? stream : branches[node.chain - 1];
    enqueue(where, node.work, after);
    clocks.push_back(where->clock);
    all.join(where->clock);
  }
  enqueue(stream, marker("graph end"), all);
  exec->finished = stream->clock;
  return CUDA_SUCCESS;
}

void drop_branches(GraphExec& exec) {
  for (const StreamPtr& branch : exec.branches) destroy_stream(branch);
  exec.branches.clear();
}

CUresult add_graph_node(const std::shared_ptr<Graph>& graph, CUgraphNode* out, const CUgraphNode* after,
                        size_t count, CUgraphNodeType type, WorkPtr work) {
  if (out == nullptr || (count > 0 && after == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> dependencies;
  for (size_t i = 0; i < count; ++i) {
    if (!graph->has(node_of(after[i]))) return CUDA_ERROR_INVALID_VALUE;
    dependencies.push_back(node_of(after[i]));
  }
  *out = node_handle(graph->add(type, std::move(work), std::move(dependencies)));
  return CUDA_SUCCESS;
}

}  // namespace cupool::sim
