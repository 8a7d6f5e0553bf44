// Events: recorded and waited for on streams, and waited for by the program.
#include "hooks/state/entry_points.hpp"
#include "hooks/submit/forward.hpp"
#include "hooks/submit/submit.hpp"

namespace cupool::hooks {

using cuda::real;

CUresult cuEventSynchronize(CUevent event) { return forward_wait(nullptr, real.cuEventSynchronize, event); }
CUresult cuEventQuery(CUevent event) { return forward(real.cuEventQuery, event); }

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return submit_only(named(stream, DefaultStream::kLegacy), real.cuEventRecord, event, stream);
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
  return submit_only(named(stream, DefaultStream::kPerThread), real.cuEventRecord_ptsz, event, stream);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return submit_only(named(stream, DefaultStream::kLegacy), real.cuEventRecordWithFlags, event, stream,
                     flags);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags) {
  return submit_only(named(stream, DefaultStream::kPerThread), real.cuEventRecordWithFlags_ptsz, event,
                     stream, flags);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return submit_only(named(stream, DefaultStream::kLegacy), real.cuStreamWaitEvent, stream, event, flags);
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags) {
  return submit_only(named(stream, DefaultStream::kPerThread), real.cuStreamWaitEvent_ptsz, stream, event,
                     flags);
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx context, CUevent event) {
  return forward(real.cuGreenCtxRecordEvent, context, event);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx context, CUevent event) {
  return forward(real.cuGreenCtxWaitEvent, context, event);
}

}  // namespace cupool::hooks
