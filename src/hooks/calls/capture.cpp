// The beginning and end of stream captures, and graphs uploaded on instantiation. While a stream captures we
// make no record, wait, query or synchronise of our own: it would break the program's capture.
#include "hooks/state/capturing_streams.hpp"
#include "hooks/state/entry_points.hpp"
#include "hooks/submit/forward.hpp"
#include "hooks/submit/submit.hpp"

namespace cupool::hooks {

using cuda::real;
using stats::Event;

namespace {

template <typename Call>
CUresult begins(CUstream stream, Call&& call) {
  if (!is_serving()) return call();
  capture_begins(stream);
  const CUresult result = call();
  if (result != CUDA_SUCCESS) capture_was_refused(stream);
  return result;
}

// An invalidated capture is over too once EndCapture was called; one that only another thread may end is not.
template <typename Call>
CUresult ends(CUstream stream, Call&& call) {
  const CUresult result = call();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (is_serving() && real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
      status == CU_STREAM_CAPTURE_STATUS_NONE) {
    capture_ended(stream);
  }
  return result;
}

bool uploads(const CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return params != nullptr && (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
}

template <typename Entry>
CUresult instantiate_and_upload(DefaultStream zero, const Entry& entry, CUgraphExec* exec, CUgraph graph,
                                CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  const CUstream stream = named(params->hUploadStream, zero);
  const auto make = [&] { return submit_graph(stream, [&] { return entry(exec, graph, params); }); };
  const auto room = [&](allocator::Effort effort) { return make_room_for(stream, entry.room(), effort); };
  const uint64_t begin = begin_observed(SlowReason::kCallsObserved);
  return tell_forwarded(entry.call(), call_with_room(make(), room, make), begin);
}

}  // namespace

CUresult cuStreamBeginCapture(CUstream stream) {
  return begins(named(stream, DefaultStream::kLegacy),
                [&] { return forward(Event::captures, real.cuStreamBeginCapture, stream); });
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  return begins(named(stream, DefaultStream::kPerThread),
                [&] { return forward(Event::captures, real.cuStreamBeginCapture_ptsz, stream); });
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begins(named(stream, DefaultStream::kLegacy),
                [&] { return forward(Event::captures, real.cuStreamBeginCapture_v2, stream, mode); });
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return begins(named(stream, DefaultStream::kPerThread),
                [&] { return forward(Event::captures, real.cuStreamBeginCapture_v2_ptsz, stream, mode); });
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                     const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) {
  return begins(named(stream, DefaultStream::kLegacy), [&] {
    return forward(Event::captures, real.cuStreamBeginCaptureToGraph, stream, graph, nodes, edges, count,
                   mode);
  });
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                          const CUgraphEdgeData* edges, size_t count,
                                          CUstreamCaptureMode mode) {
  return begins(named(stream, DefaultStream::kPerThread), [&] {
    return forward(Event::captures, real.cuStreamBeginCaptureToGraph_ptsz, stream, graph, nodes, edges, count,
                   mode);
  });
}

CUresult cuStreamBeginCaptureToCig(CUstream stream, CUstreamCigCaptureParams* params) {
  return begins(named(stream, DefaultStream::kLegacy),
                [&] { return forward(Event::captures, real.cuStreamBeginCaptureToCig, stream, params); });
}

CUresult cuStreamBeginCaptureToCig_ptsz(CUstream stream, CUstreamCigCaptureParams* params) {
  return begins(named(stream, DefaultStream::kPerThread), [&] {
    return forward(Event::captures, real.cuStreamBeginCaptureToCig_ptsz, stream, params);
  });
}

CUresult cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                       CUgraphRecaptureCallback callback, void* data) {
  return begins(named(stream, DefaultStream::kLegacy), [&] {
    return forward(Event::captures, real.cuStreamBeginRecaptureToGraph, stream, mode, graph, callback, data);
  });
}

CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                            CUgraphRecaptureCallback callback, void* data) {
  return begins(named(stream, DefaultStream::kPerThread), [&] {
    return forward(Event::captures, real.cuStreamBeginRecaptureToGraph_ptsz, stream, mode, graph, callback,
                   data);
  });
}

CUresult cuStreamEndCaptureToCig(CUstream stream) {
  return ends(named(stream, DefaultStream::kLegacy),
              [&] { return forward(real.cuStreamEndCaptureToCig, stream); });
}

CUresult cuStreamEndCaptureToCig_ptsz(CUstream stream) {
  return ends(named(stream, DefaultStream::kPerThread),
              [&] { return forward(real.cuStreamEndCaptureToCig_ptsz, stream); });
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return ends(named(stream, DefaultStream::kLegacy),
              [&] { return forward(real.cuStreamEndCapture, stream, graph); });
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return ends(named(stream, DefaultStream::kPerThread),
              [&] { return forward(real.cuStreamEndCapture_ptsz, stream, graph); });
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (!uploads(params)) return forward(real.cuGraphInstantiateWithParams, exec, graph, params);
  return instantiate_and_upload(DefaultStream::kLegacy, real.cuGraphInstantiateWithParams, exec, graph,
                                params);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (!uploads(params)) return forward(real.cuGraphInstantiateWithParams_ptsz, exec, graph, params);
  return instantiate_and_upload(DefaultStream::kPerThread, real.cuGraphInstantiateWithParams_ptsz, exec,
                                graph, params);
}

}  // namespace cupool::hooks
