// The per-thread-default-stream forms (everything but memory): the same call, in which stream 0 means the
// calling thread's own stream. Faults and counts go under the plain name. Nothing else may be decided here.
#include <cuda.h>

#include "sim/entry.hpp"

using cupool::sim::PerThreadScope;

extern "C" {

CUresult cuEventRecord_ptsz(CUevent a0, CUstream a1) {
  const PerThreadScope scope;
  return cuEventRecord(a0, a1);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent a0, CUstream a1, unsigned int a2) {
  const PerThreadScope scope;
  return cuEventRecordWithFlags(a0, a1, a2);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* a0, CUgraph a1, CUDA_GRAPH_INSTANTIATE_PARAMS* a2) {
  const PerThreadScope scope;
  return cuGraphInstantiateWithParams(a0, a1, a2);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec a0, CUstream a1) {
  const PerThreadScope scope;
  return cuGraphLaunch(a0, a1);
}

CUresult cuGraphUpload_ptsz(CUgraphExec a0, CUstream a1) {
  const PerThreadScope scope;
  return cuGraphUpload(a0, a1);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction a0, unsigned int a1, unsigned int a2, unsigned int a3,
                                        unsigned int a4, unsigned int a5, unsigned int a6, unsigned int a7,
                                        CUstream a8, void** a9) {
  const PerThreadScope scope;
  return cuLaunchCooperativeKernel(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9);
}

CUresult cuLaunchHostFunc_ptsz(CUstream a0, CUhostFn a1, void* a2) {
  const PerThreadScope scope;
  return cuLaunchHostFunc(a0, a1, a2);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* a0, CUfunction a1, void** a2, void** a3) {
  const PerThreadScope scope;
  return cuLaunchKernelEx(a0, a1, a2, a3);
}

CUresult cuLaunchKernel_ptsz(CUfunction a0, unsigned int a1, unsigned int a2, unsigned int a3,
                             unsigned int a4, unsigned int a5, unsigned int a6, unsigned int a7, CUstream a8,
                             void** a9, void** a10) {
  const PerThreadScope scope;
  return cuLaunchKernel(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10);
}

CUresult cuStreamAddCallback_ptsz(CUstream a0, CUstreamCallback a1, void* a2, unsigned int a3) {
  const PerThreadScope scope;
  return cuStreamAddCallback(a0, a1, a2, a3);
}

CUresult cuStreamAttachMemAsync_ptsz(CUstream a0, CUdeviceptr a1, size_t a2, unsigned int a3) {
  const PerThreadScope scope;
  return cuStreamAttachMemAsync(a0, a1, a2, a3);
}

CUresult cuStreamBatchMemOp_ptsz(CUstream a0, unsigned int a1, CUstreamBatchMemOpParams* a2,
                                 unsigned int a3) {
  const PerThreadScope scope;
  return cuStreamBatchMemOp(a0, a1, a2, a3);
}

CUresult cuStreamBatchMemOp_v2_ptsz(CUstream a0, unsigned int a1, CUstreamBatchMemOpParams* a2,
                                    unsigned int a3) {
  const PerThreadScope scope;
  return cuStreamBatchMemOp_v2(a0, a1, a2, a3);
}

CUresult cuStreamBeginCapture_ptsz(CUstream a0) {
  const PerThreadScope scope;
  return cuStreamBeginCapture(a0);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream a0, CUgraph a1, const CUgraphNode* a2,
                                          const CUgraphEdgeData* a3, size_t a4, CUstreamCaptureMode a5) {
  const PerThreadScope scope;
  return cuStreamBeginCaptureToGraph(a0, a1, a2, a3, a4, a5);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream a0, CUstreamCaptureMode a1) {
  const PerThreadScope scope;
  return cuStreamBeginCapture_v2(a0, a1);
}

CUresult cuStreamEndCapture_ptsz(CUstream a0, CUgraph* a1) {
  const PerThreadScope scope;
  return cuStreamEndCapture(a0, a1);
}

CUresult cuStreamGetCaptureInfo_ptsz(CUstream a0, CUstreamCaptureStatus* a1, cuuint64_t* a2) {
  const PerThreadScope scope;
  return cuStreamGetCaptureInfo(a0, a1, a2);
}

CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream a0, CUstreamCaptureStatus* a1, cuuint64_t* a2, CUgraph* a3,
                                        const CUgraphNode** a4, size_t* a5) {
  const PerThreadScope scope;
  return cuStreamGetCaptureInfo_v2(a0, a1, a2, a3, a4, a5);
}

CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream a0, CUstreamCaptureStatus* a1, cuuint64_t* a2, CUgraph* a3,
                                        const CUgraphNode** a4, const CUgraphEdgeData** a5, size_t* a6) {
  const PerThreadScope scope;
  return cuStreamGetCaptureInfo_v3(a0, a1, a2, a3, a4, a5, a6);
}

CUresult cuStreamGetCtx_ptsz(CUstream a0, CUcontext* a1) {
  const PerThreadScope scope;
  return cuStreamGetCtx(a0, a1);
}

CUresult cuStreamGetCtx_v2_ptsz(CUstream a0, CUcontext* a1, CUgreenCtx* a2) {
  const PerThreadScope scope;
  return cuStreamGetCtx_v2(a0, a1, a2);
}

CUresult cuStreamGetDevice_ptsz(CUstream a0, CUdevice* a1) {
  const PerThreadScope scope;
  return cuStreamGetDevice(a0, a1);
}

CUresult cuStreamGetFlags_ptsz(CUstream a0, unsigned int* a1) {
  const PerThreadScope scope;
  return cuStreamGetFlags(a0, a1);
}

CUresult cuStreamGetId_ptsz(CUstream a0, unsigned long long* a1) {
  const PerThreadScope scope;
  return cuStreamGetId(a0, a1);
}

CUresult cuStreamGetPriority_ptsz(CUstream a0, int* a1) {
  const PerThreadScope scope;
  return cuStreamGetPriority(a0, a1);
}

CUresult cuStreamIsCapturing_ptsz(CUstream a0, CUstreamCaptureStatus* a1) {
  const PerThreadScope scope;
  return cuStreamIsCapturing(a0, a1);
}

CUresult cuStreamQuery_ptsz(CUstream a0) {
  const PerThreadScope scope;
  return cuStreamQuery(a0);
}

CUresult cuStreamSynchronize_ptsz(CUstream a0) {
  const PerThreadScope scope;
  return cuStreamSynchronize(a0);
}

CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream a0, CUgraphNode* a1, size_t a2, unsigned int a3) {
  const PerThreadScope scope;
  return cuStreamUpdateCaptureDependencies(a0, a1, a2, a3);
}

CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream a0, CUgraphNode* a1, const CUgraphEdgeData* a2,
                                                   size_t a3, unsigned int a4) {
  const PerThreadScope scope;
  return cuStreamUpdateCaptureDependencies_v2(a0, a1, a2, a3, a4);
}

CUresult cuStreamWaitEvent_ptsz(CUstream a0, CUevent a1, unsigned int a2) {
  const PerThreadScope scope;
  return cuStreamWaitEvent(a0, a1, a2);
}

CUresult cuStreamWaitValue32_ptsz(CUstream a0, CUdeviceptr a1, cuuint32_t a2, unsigned int a3) {
  const PerThreadScope scope;
  return cuStreamWaitValue32(a0, a1, a2, a3);
}

CUresult cuStreamWaitValue32_v2_ptsz(CUstream a0, CUdeviceptr a1, cuuint32_t a2, unsigned int a3) {
  const PerThreadScope scope;
  return cuStreamWaitValue32_v2(a0, a1, a2, a3);
}

CUresult cuStreamWaitValue64_ptsz(CUstream a0, CUdeviceptr a1, cuuint64_t a2, unsigned int a3) {
  const PerThreadScope scope;
  return cuStreamWaitValue64(a0, a1, a2, a3);
}

CUresult cuStreamWaitValue64_v2_ptsz(CUstream a0, CUdeviceptr a1, cuuint64_t a2, unsigned int a3) {
  const PerThreadScope scope;
  return cuStreamWaitValue64_v2(a0, a1, a2, a3);
}

CUresult cuStreamWriteValue32_ptsz(CUstream a0, CUdeviceptr a1, cuuint32_t a2, unsigned int a3) {
  const PerThreadScope scope;
  return cuStreamWriteValue32(a0, a1, a2, a3);
}

CUresult cuStreamWriteValue32_v2_ptsz(CUstream a0, CUdeviceptr a1, cuuint32_t a2, unsigned int a3) {
  const PerThreadScope scope;
  return cuStreamWriteValue32_v2(a0, a1, a2, a3);
}

CUresult cuStreamWriteValue64_ptsz(CUstream a0, CUdeviceptr a1, cuuint64_t a2, unsigned int a3) {
  const PerThreadScope scope;
  return cuStreamWriteValue64(a0, a1, a2, a3);
}

CUresult cuStreamWriteValue64_v2_ptsz(CUstream a0, CUdeviceptr a1, cuuint64_t a2, unsigned int a3) {
  const PerThreadScope scope;
  return cuStreamWriteValue64_v2(a0, a1, a2, a3);
}

}  // extern "C"
