// The rules of capture. A failed check returns the error and invalidates what it must, in that order of
// importance: the caller returns the error and does nothing else. Under the state mutex.
#include "sim/capture.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "sim/state.hpp"

namespace cupool::sim {
namespace {

std::vector<std::shared_ptr<Capture>> captures_of(const Context& context) {
  std::vector<std::shared_ptr<Capture>> found;
  for (const StreamPtr& stream : context.streams) {
    if (stream->capture != nullptr) found.push_back(stream->capture);
  }
  return found;
}

template <typename F>
void each_capture(F&& visit) {
  state().contexts.each([&](const std::shared_ptr<Context>& context) {
    for (const auto& capture : captures_of(*context)) visit(*capture);
  });
}

void add_tips(std::vector<GraphNode*>& tips, const std::vector<GraphNode*>& more) {
  for (GraphNode* node : more) {
    if (std::find(tips.begin(), tips.end(), node) == tips.end()) tips.push_back(node);
  }
}

// Everything that `tips` depend on, themselves included.
std::unordered_set<const GraphNode*> ancestors(const std::vector<GraphNode*>& tips) {
  std::unordered_set<const GraphNode*> seen;
  std::vector<const GraphNode*> open(tips.begin(), tips.end());
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    open.insert(open.end(), node->after.begin(), node->after.end());
  }
  return seen;
}

bool joined(const Capture& capture) {
  const auto reached = ancestors(capture.origin->capture_tips);
  for (const auto& weak : capture.members) {
    const StreamPtr stream = weak.lock();
    if (stream == nullptr || stream.get() == capture.origin) continue;
    for (const GraphNode* tip : stream->capture_tips) {
      if (reached.count(tip) == 0) return false;
    }
  }
  return true;
}

void dissolve(Capture& capture) {
  for (const auto& weak : capture.members) {
    const StreamPtr stream = weak.lock();
    if (stream == nullptr || stream->capture.get() != &capture) continue;
    stream->capture_tips.clear();
    if (stream.get() != capture.origin) stream->capture.reset();
  }
}

}  // namespace

CUresult begin_capture(const StreamPtr& stream, CUstreamCaptureMode mode, std::shared_ptr<Graph> into,
                       std::vector<GraphNode*> tips) {
  if (stream->kind == StreamKind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = state().next_id++;
  capture->mode = mode;
  capture->thread = thread_id();
  capture->owns_graph = into == nullptr;
  capture->graph = into != nullptr ? std::move(into) : std::make_shared<Graph>();
  capture->graph->context_id = stream->context->id;
  capture->origin = stream.get();
  capture->members.push_back(stream);
  stream->capture = std::move(capture);
  stream->capture_tips = std::move(tips);
  return CUDA_SUCCESS;
}

CUresult end_capture(const StreamPtr& stream, std::shared_ptr<Graph>& graph) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream.get()) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = CUDA_SUCCESS;
  if (capture->invalidated) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!joined(*capture)) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  } else {
    graph = capture->graph;
  }
  dissolve(*capture);
  stream->capture.reset();
  return result;
}

CUresult check_unsafe_call() {
  const CUstreamCaptureMode mode = thread_state.capture_mode;
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  bool forbidden = false;
  each_capture([&](Capture& capture) {
    const bool own = capture.thread == thread_id();
    const bool stops =
        own ? capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED
            : capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!stops) return;
    forbidden = true;
    capture.invalidated = true;
  });
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult check_context_call(Context& context) {
  const auto running = captures_of(context);
  for (const auto& capture : running) capture->invalidated = true;
  return running.empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult check_stream_wait(Stream& stream) {
  if (stream.capture != nullptr) {
    stream.capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  const CUresult implicit = check_submission(stream);
  return implicit != CUDA_SUCCESS ? implicit : check_unsafe_call();
}

bool orders_with_a_capture(const Stream& stream) {
  if (stream.kind != StreamKind::kLegacy) return false;
  const auto& all = stream.context->streams;
  return std::any_of(all.begin(), all.end(), [](const StreamPtr& s) { return s->capture && s->blocking(); });
}

CUresult check_submission(Stream& stream) {
  if (!orders_with_a_capture(stream)) return CUDA_SUCCESS;
  for (const StreamPtr& other : stream.context->streams) {
    if (other->capture != nullptr && other->blocking()) other->capture->invalidated = true;
  }
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult check_capture(Stream& stream) {
  return stream.capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult capture_work(Stream& stream, WorkPtr work) {
  const CUresult valid = check_capture(stream);
  if (valid != CUDA_SUCCESS) return valid;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_MEMCPY;
  if (work->kernel) type = CU_GRAPH_NODE_TYPE_KERNEL;
  if (work->host != nullptr) type = CU_GRAPH_NODE_TYPE_HOST;
  if (work->what.find("emset") != std::string::npos) type = CU_GRAPH_NODE_TYPE_MEMSET;
  GraphNode* node = stream.capture->graph->add(type, std::move(work), stream.capture_tips);
  stream.capture_tips.assign(1, node);
  return CUDA_SUCCESS;
}

Graph* capture_graph(Stream& stream) { return stream.capture->graph.get(); }

CUresult capture_record(Stream& stream, Event& event) {
  const CUresult valid = check_capture(stream);
  if (valid != CUDA_SUCCESS) return valid;
  event.capture = stream.capture;
  event.capture_tips = stream.capture_tips;
  event.recorded_in_capture = true;
  return CUDA_SUCCESS;
}

CUresult capture_wait(const StreamPtr& stream, Event& event) {
  const std::shared_ptr<Capture> source = event.recorded_in_capture ? event.capture.lock() : nullptr;
  if (source == nullptr || source->origin->capture != source) {
    if (stream->capture == nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    stream->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (source->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->kind == StreamKind::kLegacy) {
    source->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (stream->capture == nullptr) {
    stream->capture = source;
    stream->capture_tips = event.capture_tips;
    source->members.push_back(stream);
    return CUDA_SUCCESS;
  }
  if (stream->capture != source) {
    stream->capture->invalidated = true;
    source->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  add_tips(stream->capture_tips, event.capture_tips);
  return CUDA_SUCCESS;
}

void leave_capture(Stream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return;
  capture->invalidated = true;
  if (capture->origin == &stream) dissolve(*capture);
  stream.capture.reset();
  stream.capture_tips.clear();
}

}  // namespace cupool::sim
