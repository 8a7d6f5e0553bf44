// Functions of toolkits newer than 13.0, the oldest that we build with: a driver may have them whichever
// toolkit we were built with. Where cuda.h has them too, the compiler holds the two against each other.
// Included by cuda_api.hpp alone, after cuda.h.
#pragma once

extern "C" {
#pragma GCC visibility push(default)

#if CUDA_VERSION < 13020
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
#endif
#if CUDA_VERSION < 13030
typedef CUresult (*CUgraphRecaptureCallback)(void);  // passed on, never called
#endif

// 13.1
CUresult cuStreamGetDevResource(CUstream hStream, CUdevResource* resource, CUdevResourceType type);

// 13.2
CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes* attr,
                                     CUstream hStream);
CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP* op, unsigned long long flags,
                                       CUstream hStream);
CUresult cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void* userData, unsigned int syncMode);
CUresult cuStreamBeginCaptureToCig(CUstream hStream, CUstreamCigCaptureParams* streamCigCaptureParams);
CUresult cuStreamEndCaptureToCig(CUstream hStream);

// 13.3
CUresult cuStreamBeginRecaptureToGraph(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
                                       CUgraphRecaptureCallback callbackFunc, void* userData);

// Their per-thread forms.
decltype(cuMemcpyWithAttributesAsync) cuMemcpyWithAttributesAsync_ptsz;
decltype(cuMemcpy3DWithAttributesAsync) cuMemcpy3DWithAttributesAsync_ptsz;
decltype(cuLaunchHostFunc_v2) cuLaunchHostFunc_v2_ptsz;
decltype(cuStreamBeginCaptureToCig) cuStreamBeginCaptureToCig_ptsz;
decltype(cuStreamEndCaptureToCig) cuStreamEndCaptureToCig_ptsz;
decltype(cuStreamBeginRecaptureToGraph) cuStreamBeginRecaptureToGraph_ptsz;

#pragma GCC visibility pop
}
