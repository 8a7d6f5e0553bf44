// Chapters about time: context events, the kinds of streams, capture.
#include <initializer_list>

#include "facts.hpp"

namespace facts {

void order() {
  Device d;
  for (int i = 0; i < 10; ++i) {
    CUstream first = new_stream();
    CUevent event = new_event();
    CUdeviceptr p = allocate(1 << 20);
    MUST(d.launch_spin(first));
    d.launch_fill(first, p, 1 << 20, 9);
    MUST(cuCtxRecordEvent(d.context, event));
    MUST(cuCtxWaitEvent(d.context, event));
    CUstream later = new_stream();
    unsigned char byte = 0;
    MUST(cuMemcpyDtoHAsync_v2(&byte, p + 1000, 1, later));
    MUST(cuStreamSynchronize(later));
    EXPECT(byte, 9);
    EXPECT(cuEventQuery(event), CUDA_SUCCESS);
    MUST(cuMemFree_v2(p));
    MUST(cuEventDestroy_v2(event));
    MUST(cuStreamDestroy_v2(first));
    MUST(cuStreamDestroy_v2(later));
  }
}

// A context event covers the work of streams that were destroyed before it was recorded, and is not done
// before an older one.
void gone() {
  Device d;
  for (int i = 0; i < 20; ++i) {
    CUstream first = new_stream(i % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    CUstream later = new_stream();
    CUevent last_words = new_event(), before = new_event(), after = new_event();
    CUdeviceptr p = allocate(1 << 20);
    for (int k = 0; k < 16; ++k) MUST(d.launch_spin(first));
    d.launch_fill(first, p, 1 << 20, 9);
    MUST(cuEventRecord(last_words, first));
    MUST(cuCtxRecordEvent(d.context, before));
    MUST(cuStreamDestroy_v2(first));
    MUST(cuCtxRecordEvent(d.context, after));
    unsigned char byte = 0;
    if (i % 4 < 2) {
      MUST(cuEventSynchronize(after));
      EXPECT(cuEventQuery(before), CUDA_SUCCESS);
      EXPECT(cuEventQuery(last_words), CUDA_SUCCESS);
    } else {
      MUST(cuStreamWaitEvent(later, after, 0));
      MUST(cuMemcpyDtoHAsync_v2(&byte, p + 1000, 1, later));
      MUST(cuStreamSynchronize(later));
      EXPECT(byte, 9);
    }
    MUST(cuCtxSynchronize());
    MUST(cuMemFree_v2(p));
    for (CUevent event : {last_words, before, after}) MUST(cuEventDestroy_v2(event));
    MUST(cuStreamDestroy_v2(later));
  }
}

namespace {

// Fills on one stream after a while, reads on another at once; what was read.
unsigned char read_after_fill(Device& d, CUstream fills, CUstream reads) {
  CUdeviceptr p = allocate(1 << 20);
  MUST(cuMemsetD8_v2(p, 1, 1 << 20));
  MUST(cuCtxSynchronize());
  MUST(d.launch_spin(fills));
  d.launch_fill(fills, p, 1 << 20, 9);
  unsigned char byte = 0;
  MUST(cuMemcpyDtoHAsync_v2(&byte, p + 1000, 1, reads));
  MUST(cuStreamSynchronize(reads));
  MUST(cuMemFree_v2(p));
  return byte;
}

}  // namespace

void streams() {
  Device d;
  CUstream blocking_stream = new_stream(CU_STREAM_DEFAULT);
  CUstream lone_stream = new_stream(CU_STREAM_NON_BLOCKING);
  int stale = 0;
  int stale_between_blocking = 0;
  CUstream other_blocking = new_stream(CU_STREAM_DEFAULT);
  for (int i = 0; i < 10; ++i) {
    EXPECT(read_after_fill(d, blocking_stream, CU_STREAM_LEGACY), 9);
    EXPECT(read_after_fill(d, CU_STREAM_LEGACY, blocking_stream), 9);
    EXPECT(read_after_fill(d, CU_STREAM_PER_THREAD, CU_STREAM_LEGACY), 9);
    EXPECT(read_after_fill(d, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD), 9);
    stale += read_after_fill(d, lone_stream, CU_STREAM_LEGACY) != 9;
    stale += read_after_fill(d, CU_STREAM_LEGACY, lone_stream) != 9;
    stale_between_blocking += read_after_fill(d, blocking_stream, other_blocking) != 9;
  }
  EXPECT(stale > 0, true);
  EXPECT(stale_between_blocking > 0, true);
  CUevent event = new_event();
  CUdeviceptr p = allocate(64);
  MUST(d.launch_spin(blocking_stream));
  d.launch_fill(blocking_stream, p, 64, 5);
  MUST(cuEventRecord(event, CU_STREAM_LEGACY));
  MUST(cuStreamWaitEvent(lone_stream, event, 0));
  unsigned char byte = 0;
  MUST(cuMemcpyDtoHAsync_v2(&byte, p, 1, lone_stream));
  EXPECT(byte, 5);
}

namespace {

// Begins a capture, makes the call, and says how the capture ended.
template <typename Call>
CUresult end_after(CUstreamCaptureMode mode, CUresult expected, Call&& call) {
  CUstream stream = new_stream();
  CUgraph graph = nullptr;
  MUST(cuStreamBeginCapture_v2(stream, mode));
  EXPECT(call(), expected);
  const CUresult ended = cuStreamEndCapture(stream, &graph);
  if (graph != nullptr) MUST(cuGraphDestroy(graph));
  MUST(cuStreamDestroy_v2(stream));
  return ended;
}

}  // namespace

void capture() {
  Device d;
  CUstream other = new_stream();
  CUevent event = new_event();
  MUST(cuEventRecord(event, other));
  MUST(cuCtxSynchronize());
  constexpr CUresult kRefused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  constexpr CUresult kInvalid = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const auto modes = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                      CU_STREAM_CAPTURE_MODE_RELAXED};
  for (const CUstreamCaptureMode mode : modes) {
    const bool relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    const CUresult by_mode = relaxed ? CUDA_SUCCESS : kRefused;
    const CUresult end_by_mode = relaxed ? CUDA_SUCCESS : kInvalid;
    CUdeviceptr p = 0;
    CUdeviceptr held = allocate(64);
    size_t room = 0;
    EXPECT(end_after(mode, by_mode, [&] { return cuMemAlloc_v2(&p, 64); }), end_by_mode);
    EXPECT(end_after(mode, by_mode, [&] { return cuMemFree_v2(held); }), end_by_mode);
    EXPECT(end_after(mode, kRefused, [&] { return cuCtxRecordEvent(d.context, event); }), kInvalid);
    EXPECT(end_after(mode, kRefused, [] { return cuCtxSynchronize(); }), kInvalid);
    EXPECT(end_after(mode, by_mode, [&] { return cuEventQuery(event); }), end_by_mode);
    EXPECT(end_after(mode, CUDA_SUCCESS, [&] { return cuEventRecord(event, other); }), CUDA_SUCCESS);
    EXPECT(end_after(mode, CUDA_SUCCESS, [&] { return cuMemGetInfo_v2(&room, &room); }), CUDA_SUCCESS);
    MUST(cuCtxSynchronize());
  }
}

}  // namespace facts
