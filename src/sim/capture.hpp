// Stream capture: which streams record into which graph, and who may not be called meanwhile.
// A capture is begun on one stream and spreads to others through events; calls that are not allowed fail and
// invalidate it, by the table the real driver was observed to follow. All under the state mutex.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "sim/graphs.hpp"
#include "sim/model.hpp"

namespace cupool::sim {

struct Capture {
  std::uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t thread = 0;
  bool invalidated = false;
  bool owns_graph = true;  // false: captured into a graph of the program's
  std::shared_ptr<Graph> graph;
  Stream* origin = nullptr;
  std::vector<std::weak_ptr<Stream>> members;
};

CUresult begin_capture(const StreamPtr& stream, CUstreamCaptureMode mode, std::shared_ptr<Graph> into,
                       std::vector<GraphNode*> tips);
CUresult end_capture(const StreamPtr& stream, std::shared_ptr<Graph>& graph);

// Potentially unsafe calls (allocation, free, queries, synchronous copies): by mode and thread.
CUresult check_unsafe_call();
// Calls that speak of a whole context: no stream of it may be capturing, in any mode.
CUresult check_context_call(Context& context);
// Waits and queries of one stream: it may not be capturing, and the call is potentially unsafe besides.
CUresult check_stream_wait(Stream& stream);
// The legacy stream may not take work while a stream it would order with is capturing.
CUresult check_submission(Stream& stream);
// The same question asked out of curiosity: the answer is an error, but nothing is invalidated.
bool orders_with_a_capture(const Stream& stream);
// A capturing stream takes nothing more once its capture is invalidated.
CUresult check_capture(Stream& stream);

CUresult capture_work(Stream& stream, WorkPtr work);
Graph* capture_graph(Stream& stream);
CUresult capture_record(Stream& stream, Event& event);
CUresult capture_wait(const StreamPtr& stream, Event& event);
void leave_capture(Stream& stream);  // the stream is being destroyed

}  // namespace cupool::sim
