// Memory that another process opens.
#include "hooks/forward.hpp"

using cupool::cuda::real;
using cupool::hooks::forward;
using cupool::stats::Event;

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  return forward(Event::ipc_exports, real.cuIpcGetMemHandle, handle, pointer);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  return forward(Event::ipc_imports, real.cuIpcOpenMemHandle, pointer, handle, flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  return forward(Event::ipc_imports, real.cuIpcOpenMemHandle_v2, pointer, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) { return forward(real.cuIpcCloseMemHandle, pointer); }
