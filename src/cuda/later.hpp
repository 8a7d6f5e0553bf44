// Declarations from toolkits newer than 12.0, the oldest we build with: the driver may have these functions
// whichever toolkit we were built with. Where cuda.h declares them too, the compiler checks that both agree.
// Of structures only the name is needed. Included by cuda_api.hpp alone, after cuda.h.
#pragma once

extern "C" {
#pragma GCC visibility push(default)

typedef struct CUmulticastObjectProp_st CUmulticastObjectProp;
typedef struct CUgraphNodeParams_st CUgraphNodeParams;
typedef struct CUgraphEdgeData_st CUgraphEdgeData;
typedef struct CUgreenCtx_st* CUgreenCtx;
typedef struct CUdevResourceDesc_st* CUdevResourceDesc;
typedef struct CUdevResource_st CUdevResource;
typedef struct CUctxCreateParams_st CUctxCreateParams;
typedef struct CUmemDecompressParams_st CUmemDecompressParams;
typedef struct CUmemcpyAttributes_st CUmemcpyAttributes;
typedef struct CUDA_MEMCPY3D_BATCH_OP_st CUDA_MEMCPY3D_BATCH_OP;
#if CUDA_VERSION < 12040
typedef unsigned CUdevResourceType;  // an enumeration of that width
#endif
#if CUDA_VERSION < 13020
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
#endif
#if CUDA_VERSION < 13030
typedef CUresult (*CUgraphRecaptureCallback)(void);  // passed on, never called
#endif

// 12.1
CUresult cuMulticastCreate(CUmemGenericAllocationHandle* mcHandle, const CUmulticastObjectProp* prop);
CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev);
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags);
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr,
                             size_t size, unsigned long long flags);

// 12.2
CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams);
CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams);
CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams* nodeParams);
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location);
CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                               CUstream hStream);

// 12.3
CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* dependencyData, size_t numDependencies,
                           CUgraphNodeParams* nodeParams);
CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode);

// 12.4
CUresult cuFuncLoad(CUfunction function);
CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags);
CUresult cuGreenCtxDestroy(CUgreenCtx hCtx);
CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx);
CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent);
CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent);

// 12.5
CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev);
CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent);
CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent);
CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags, int priority);

// 12.6
CUresult cuMemBatchDecompressAsync(CUmemDecompressParams* paramsArray, size_t count, unsigned int flags,
                                   size_t* errorIndex, CUstream stream);

// 12.8
CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, size_t* failIdx,
                            CUstream hStream);
CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                              unsigned long long flags, CUstream hStream);

// 13.0
CUresult cuCtxSynchronize_v2(CUcontext ctx);
CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location, CUmemAllocationType type);
CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type);
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream);
CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, unsigned long long flags,
                                 CUstream hStream);
CUresult cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count, CUmemLocation* prefetchLocs,
                                 size_t* prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream);
CUresult cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count, unsigned long long flags,
                                CUstream hStream);
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                           CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream);

// 13.1
CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                               CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                               unsigned long long flags);
CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                                CUdeviceptr memptr, size_t size, unsigned long long flags);
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

// 13.4
CUresult cuGraphAddNode_v3(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* dependencyData, size_t numDependencies,
                           CUgraphNodeParams* nodeParams);

// Their per-thread forms.
decltype(cuMemPrefetchAsync_v2) cuMemPrefetchAsync_v2_ptsz;
decltype(cuStreamBeginCaptureToGraph) cuStreamBeginCaptureToGraph_ptsz;
decltype(cuMemBatchDecompressAsync) cuMemBatchDecompressAsync_ptsz;
decltype(cuMemcpyBatchAsync) cuMemcpyBatchAsync_ptsz;
decltype(cuMemcpy3DBatchAsync) cuMemcpy3DBatchAsync_ptsz;
decltype(cuMemcpyBatchAsync_v2) cuMemcpyBatchAsync_v2_ptsz;
decltype(cuMemcpy3DBatchAsync_v2) cuMemcpy3DBatchAsync_v2_ptsz;
decltype(cuMemPrefetchBatchAsync) cuMemPrefetchBatchAsync_ptsz;
decltype(cuMemDiscardBatchAsync) cuMemDiscardBatchAsync_ptsz;
decltype(cuMemDiscardAndPrefetchBatchAsync) cuMemDiscardAndPrefetchBatchAsync_ptsz;
decltype(cuMemcpyWithAttributesAsync) cuMemcpyWithAttributesAsync_ptsz;
decltype(cuMemcpy3DWithAttributesAsync) cuMemcpy3DWithAttributesAsync_ptsz;
decltype(cuLaunchHostFunc_v2) cuLaunchHostFunc_v2_ptsz;
decltype(cuStreamBeginCaptureToCig) cuStreamBeginCaptureToCig_ptsz;
decltype(cuStreamEndCaptureToCig) cuStreamEndCaptureToCig_ptsz;
decltype(cuStreamBeginRecaptureToGraph) cuStreamBeginRecaptureToGraph_ptsz;

#pragma GCC visibility pop
}

namespace cupool::cuda {

// Errors added after 12.0.
inline constexpr auto kErrorContained = static_cast<CUresult>(226);
inline constexpr auto kErrorTensorMemoryLeak = static_cast<CUresult>(721);
// Of memory that a program maps: places (12.2) and uses (12.8).
inline constexpr auto kLocationHostNuma = static_cast<CUmemLocationType>(3);
inline constexpr auto kAttributeHostNumaId = static_cast<CUdevice_attribute>(134);
inline constexpr unsigned short kUsageDecompress = 2;
#if CUDA_VERSION >= 13000
static_assert(kLocationHostNuma == CU_MEM_LOCATION_TYPE_HOST_NUMA &&
              kAttributeHostNumaId == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID &&
              kUsageDecompress == CU_MEM_CREATE_USAGE_HW_DECOMPRESS);
static_assert(kErrorContained == CUDA_ERROR_CONTAINED &&
              kErrorTensorMemoryLeak == CUDA_ERROR_TENSOR_MEMORY_LEAK);
#endif

}  // namespace cupool::cuda
