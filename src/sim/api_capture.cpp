// Entry points for stream capture. The rules live in capture.*; here are the arguments.
#include <cuda.h>

#include <utility>

#include "sim/capture.hpp"
#include "sim/entry.hpp"

using namespace cupool::sim;

namespace {

CUresult begin(Site& site, CUstream handle, CUstreamCaptureMode mode) {
  return on_stream(site, handle, [&](const StreamPtr& stream) -> CUresult {
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
      return CUDA_ERROR_INVALID_VALUE;
    stand_beside_launches(*stream->context);
    return begin_capture(stream, mode, nullptr, {});
  });
}

CUstreamCaptureStatus status_of(const Stream& stream) {
  if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUgraph graph_handle(const std::shared_ptr<Graph>& graph) {
  if (graph->handle == nullptr) graph->handle = state().graphs.insert(graph);
  return graph->handle;
}

// The dependencies handed to the program must outlive the call: each thread keeps its last answer.
const CUgraphNode* tips_for_program(const Stream& stream, std::size_t* count) {
  static thread_local std::vector<CUgraphNode>* const kept = new std::vector<CUgraphNode>;
  kept->clear();
  for (GraphNode* node : stream.capture_tips) kept->push_back(node_handle(node));
  if (count != nullptr) *count = kept->size();
  return kept->data();
}

CUresult info(Site& site, CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** tips, size_t* count) {
  return on_stream_anywhere(site, handle, [&](const StreamPtr& stream) -> CUresult {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (orders_with_a_capture(*stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = status_of(*stream);
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (id != nullptr) *id = stream->capture->id;
    if (graph != nullptr) *graph = graph_handle(stream->capture->graph);
    if (tips != nullptr) *tips = tips_for_program(*stream, count);
    return CUDA_SUCCESS;
  });
}

CUresult update(Site& site, CUstream handle, CUgraphNode* nodes, size_t count, unsigned flags) {
  return on_stream(site, handle, [&](const StreamPtr& stream) -> CUresult {
    if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    const CUresult valid = check_capture(*stream);
    if (valid != CUDA_SUCCESS) return valid;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->capture_tips.clear();
    for (size_t i = 0; i < count; ++i) stream->capture_tips.push_back(node_of(nodes[i]));
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuTomorrow(CUstream stream);

// What no toolkit has: the entry point of a driver that is newer than cupool, and begins a capture.
CUresult cuTomorrow(CUstream stream) {
  return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(SIM_SITE(cuStreamBeginCapture_v2), stream, mode);
}

CUresult cuStreamBeginCapture(CUstream stream) {
  return begin(SIM_SITE(cuStreamBeginCapture), stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle_in, const CUgraphNode* nodes,
                                     const CUgraphEdgeData*, size_t count, CUstreamCaptureMode mode) {
  return on_stream(SIM_SITE(cuStreamBeginCaptureToGraph), handle, [&](const StreamPtr& stream) -> CUresult {
    const auto graph = state().graphs.find(graph_handle_in);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<GraphNode*> tips;
    for (size_t i = 0; i < count; ++i) tips.push_back(node_of(nodes[i]));
    return begin_capture(stream, mode, graph, std::move(tips));
  });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* out) {
  return on_stream(SIM_SITE(cuStreamEndCapture), handle, [&](const StreamPtr& stream) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = nullptr;
    std::shared_ptr<Graph> graph;
    const CUresult result = end_capture(stream, graph);
    if (result == CUDA_SUCCESS) *out = graph_handle(graph);
    return result;
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return info(SIM_SITE(cuStreamIsCapturing), handle, status, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return info(SIM_SITE(cuStreamGetCaptureInfo), handle, status, id, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** tips, size_t* count) {
  return info(SIM_SITE(cuStreamGetCaptureInfo_v2), handle, status, id, graph, tips, count);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** tips, const CUgraphEdgeData** edges,
                                   size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return info(SIM_SITE(cuStreamGetCaptureInfo_v3), handle, status, id, graph, tips, count);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode* nodes, size_t count,
                                           unsigned int flags) {
  return update(SIM_SITE(cuStreamUpdateCaptureDependencies), handle, nodes, count, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode* nodes, const CUgraphEdgeData*,
                                              size_t count, unsigned int flags) {
  return update(SIM_SITE(cuStreamUpdateCaptureDependencies_v2), handle, nodes, count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return in_driver(SIM_SITE(cuThreadExchangeStreamCaptureMode), [&]() -> CUresult {
    if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::swap(thread_state.capture_mode, *mode);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
