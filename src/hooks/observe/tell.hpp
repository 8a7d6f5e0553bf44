// How entry points feed the observer: each tells its result once, when all repetitions are over, and returns
// it. With no listener on, each is a test of one word. Owns nothing, holds no lock.
#pragma once

#include "base/clock.hpp"
#include "cuda/cuda_api.hpp"
#include "hooks/observe/observer.hpp"
#include "hooks/state/serving.hpp"

namespace cupool::hooks {

inline uint64_t number_of(CUstream stream) { return reinterpret_cast<uint64_t>(stream); }

// When a call begins, if a listener wants to know how long it takes; else 0.
inline uint64_t begin_observed(SlowReason reason) { return is_slow_for(reason) ? now_ns() : 0; }

// `stream` went through named(); null: several. `begin`: when the call began; 0: not known.
[[gnu::cold]] void tell_submission(cuda::Call call, CUstream stream, CUresult result, uint64_t begin,
                                   bool is_plain = false);
inline CUresult tell_submitted(cuda::Call call, CUstream stream, CUresult result) {
  if (is_slow_for(SlowReason::kWorkObserved)) [[unlikely]]
    tell_submission(call, stream, result, 0);
  return result;
}

// A call that has no event of its own.
[[gnu::cold]] CUresult tell_forward(cuda::Call call, CUresult result, uint64_t begin);
inline CUresult tell_forwarded(cuda::Call call, CUresult result, uint64_t begin = 0) {
  if (is_slow_for(SlowReason::kCallsObserved)) [[unlikely]]
    return tell_forward(call, result, begin);
  return result;
}

// Makes a call, and tells that it is about to be made and that it was; `begin` gets when it began, or 0 where
// no listener wants to know.
template <typename Make>
[[gnu::cold, gnu::noinline]] CUresult make_observed(cuda::Call call, uint64_t* begin, const Make& make) {
  observer.calling({call});
  *begin = now_ns();
  const CUresult result = make();
  observer.called({call, now_ns() - *begin});
  return result;
}
template <typename Make>
CUresult observe_call(cuda::Call call, uint64_t* begin, const Make& make) {
  *begin = 0;
  return is_slow_for(SlowReason::kCallsObserved) ? make_observed(call, begin, make) : make();
}
template <typename Make>
CUresult observe_call(cuda::Call call, const Make& make) {
  uint64_t begin = 0;
  return observe_call(call, &begin, make);
}

// One allocation by the program, or its failure. `stream` of a stream-ordered one went through named(); else
// null.
class AllocationReport {
 public:
  explicit AllocationReport(cuda::Call call, CUstream stream = nullptr,
                            observe::Memory memory = observe::Memory::kDevice)
      : call_(call), stream_(stream), memory_(memory) {
    if (is_slow_for(SlowReason::kMemoryObserved)) [[unlikely]]
      begin();
  }
  AllocationReport(const AllocationReport&) = delete;
  AllocationReport& operator=(const AllocationReport&) = delete;

  // Tells it, and returns the result. `pointer` is read only after success.
  CUresult answer(observe::Server server, const CUdeviceptr* pointer, size_t bytes, CUresult result) {
    if (begin_ != 0) [[unlikely]]
      tell(server, pointer, bytes, result);
    return result;
  }

 private:
  [[gnu::cold]] void begin();
  [[gnu::cold]] void tell(observe::Server server, const CUdeviceptr* pointer, size_t bytes, CUresult result);

  const cuda::Call call_;
  const CUstream stream_;
  const observe::Memory memory_;
  uint64_t begin_ = 0;
};

// Memory of the driver's that is given or taken by a call with no other event.
[[gnu::cold]] void tell_other_taken(cuda::Call call, observe::Memory memory, uint64_t handle, uint64_t bytes,
                                    CUresult result, uint64_t begin);
[[gnu::cold]] void tell_other_given(cuda::Call call, observe::Memory memory, uint64_t handle, CUresult result,
                                    uint64_t begin);

// One free by the program, or its failure.
class FreeReport {
 public:
  FreeReport(cuda::Call call, CUdeviceptr pointer, CUstream stream = nullptr)
      : call_(call), is_on_(is_slow_for(SlowReason::kMemoryObserved)), pointer_(pointer), stream_(stream) {
    if (is_on_) [[unlikely]]
      look_up();
  }
  FreeReport(const FreeReport&) = delete;
  FreeReport& operator=(const FreeReport&) = delete;

  // The pool is about to take the block back, if it is one: it is told now, before another thread can be
  // given the same address.
  void block_returns() {
    if (is_on_) [[unlikely]]
      tell_freed();
  }
  // The call fails because of its pointer.
  void pointer_is_bad() { is_bad_pointer_ = true; }
  // Tells what was not told yet, and returns the result.
  CUresult answer(CUresult result) {
    if (is_on_) [[unlikely]]
      tell(result);
    return result;
  }

 private:
  [[gnu::cold]] void look_up();
  [[gnu::cold]] void tell_freed();
  [[gnu::cold]] void tell(CUresult result);

  const cuda::Call call_;
  const bool is_on_;
  bool is_block_ = false;
  bool is_told_ = false;
  bool is_bad_pointer_ = false;
  const CUdeviceptr pointer_;
  const CUstream stream_;
  uint64_t began_ = 0;
  uint64_t bytes_ = 0;
  driver::Context context_ = nullptr;
};

}  // namespace cupool::hooks
