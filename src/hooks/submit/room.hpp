// Refused means: release, then ask again. When the driver answers OUT_OF_MEMORY to a call that cuda/api.def
// marks with CUPOOL_ROOM, idle memory of ours is released and the call made again: without cupool that
// memory would have been there. A call that was refused had no effect, so it can be repeated; when
// nothing more can be released, the program gets the refusal. Owns nothing, holds no lock.
//
// A launch may also be answered with LAUNCH_OUT_OF_RESOURCES when the device heap or its stack does not fit.
// Mostly that speaks of registers and shared memory, which no release provides, and autotuners provoke it in
// loops: so the driver is asked first whether the kernel fits a multiprocessor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "allocator/allocator.hpp"
#include "cuda/real.hpp"
#include "driver/driver.hpp"
#include "hooks/observe/other_memory.hpp"
#include "hooks/observe/tell.hpp"

namespace cupool::hooks {

// The device of a context or, if that is null, of the current one; else memory::kEveryDevice.
int device_of(driver::Context context = nullptr);

// Releases idle memory on a device, as far as the effort goes: its number, or cuda::kHere or kAnywhere; kHere
// is the device of `context` or, if that is null, of the current context. False: nothing was released, or the
// pool does not serve this call, or a stream captures, which a wait for work would break; or a release cannot
// cover `bytes`, which the call wants (0: unknown).
[[gnu::cold]] bool make_room(allocator::Effort effort, int where, driver::Context context = nullptr,
                             uint64_t bytes = 0);

inline bool is_out_of_memory(CUresult result) { return result == CUDA_ERROR_OUT_OF_MEMORY; }

// While the answer `is_refused`: makes room with growing effort and repeats the call after each, so that no
// more is released, and waited for, than is needed.
template <typename Room, typename Call, typename Refused = bool (*)(CUresult)>
CUresult call_with_room(CUresult result, Room&& room, Call&& call, Refused&& is_refused = is_out_of_memory) {
  for (const allocator::Effort effort : allocator::kEfforts) {
    if (!is_refused(result)) break;
    if (room(effort)) result = call();
  }
  return result;
}

namespace detail {

inline int device_in(CUdevice device) { return device; }
inline int device_in(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : cuda::kAnywhere;
}
inline int device_in(const CUmemLocation* location) {
  return location != nullptr ? device_in(*location) : cuda::kAnywhere;
}
inline int device_in(const CUmemAllocationProp* properties) {
  return properties != nullptr ? device_in(properties->location) : cuda::kAnywhere;
}
inline int device_in(const CUmemPoolProps* properties) {
  return properties != nullptr ? device_in(properties->location) : cuda::kAnywhere;
}
// Every other type names no device; api.def does not point at it.
template <typename Other>
requires(!std::is_convertible_v<Other, int> && !std::is_same_v<Other, CUmemLocation> &&
         !std::is_convertible_v<Other, const CUmemLocation*> &&
         !std::is_convertible_v<Other, const CUmemAllocationProp*> &&
         !std::is_convertible_v<Other, const CUmemPoolProps*>) int device_in(const Other&) {
  return cuda::kAnywhere;
}

// The driver overwrites values of JIT options, such as the size of a log buffer, even when it refuses: they
// are put back before the call is repeated.
class NoJitOptions {
 public:
  template <typename... Args>
  explicit NoJitOptions(const Args&...) {}
  void restore() const {}
};

class JitOptions {
 public:
  template <typename... Args>
  explicit JitOptions(const Args&... args) {
    constexpr size_t place = place_of_options<Args...>();
    const auto all = std::tie(args...);
    values_ = std::get<place + 1>(all);
    // The count stands before the options or behind their values.
    if constexpr (std::is_same_v<std::tuple_element_t<place - 1, std::tuple<Args...>>, unsigned>) {
      count_ = std::get<place - 1>(all);
    } else {
      count_ = std::get<place + 2>(all);
    }
    count_ = values_ != nullptr ? std::min<size_t>(count_, kMost) : 0;
    std::copy_n(values_, count_, saved_);
  }
  JitOptions(const JitOptions&) = delete;
  JitOptions& operator=(const JitOptions&) = delete;

  void restore() const { std::copy_n(saved_, count_, values_); }

  template <typename... Args>
  static consteval size_t place_of_options() {
    constexpr bool is_options[] = {std::is_same_v<Args, CUjit_option*>..., false};
    return static_cast<size_t>(std::find(is_options, is_options + sizeof...(Args), true) - is_options);
  }

 private:
  static constexpr size_t kMost = 64;  // more than there are options

  void** values_ = nullptr;
  size_t count_ = 0;
  void* saved_[kMost];
};

}  // namespace detail

// What make_room() wants to know, from the mark of a row and the call's arguments.
template <typename... Args>
int device_named(int room, const Args&... args) {
  if (room < 0) return room;
  int device = cuda::kAnywhere;
  int place = 0;
  ((place++ == room ? void(device = detail::device_in(args)) : void()), ...);
  return device >= 0 ? device : cuda::kAnywhere;
}

// How many bytes of device memory the call needs at least; 0: unknown, or a memory pool of the driver's may
// have them already.
template <typename... Args>
uint64_t bytes_named(const Args&...) {
  return 0;
}
inline uint64_t bytes_named(CUmemGenericAllocationHandle*, size_t bytes, const CUmemAllocationProp*,
                            unsigned long long) {
  return bytes;
}

// Whether a kernel could run as launched if the device had memory for it.
[[gnu::cold]] bool fits_multiprocessor(CUfunction function, uint64_t threads, size_t shared_bytes);

// Whether a call failed for lack of device memory.
template <typename... Args>
bool lacks_memory(CUresult result, const Args&...) {
  return result == CUDA_ERROR_OUT_OF_MEMORY;
}
template <typename... Rest>
bool lacks_memory(CUresult result, CUfunction function, unsigned, unsigned, unsigned, unsigned x, unsigned y,
                  unsigned z, unsigned shared_bytes, const Rest&...) {
  return result == CUDA_ERROR_OUT_OF_MEMORY ||
         (result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES &&
          fits_multiprocessor(function, uint64_t{x} * y * z, shared_bytes));
}
template <typename... Rest>
bool lacks_memory(CUresult result, const CUlaunchConfig* config, CUfunction function, const Rest&...) {
  return config == nullptr ? result == CUDA_ERROR_OUT_OF_MEMORY
                           : lacks_memory(result, function, 0, 0, 0, config->blockDimX, config->blockDimY,
                                          config->blockDimZ, config->sharedMemBytes);
}

// The hook of a row that is hooked for this alone, or to be told. It sets no re-entry guard: what the call
// leads to is handled as if there were no hook.
template <typename Self, typename Function>
struct RoomHook;

template <typename Self, typename... Args>
struct RoomHook<Self, CUresult (*)(Args...)> {
  static CUresult call(Args... args) {
    if (is_slow_for_any(SlowReason::kCallsObserved, SlowReason::kMemoryObserved)) [[unlikely]]
      return call_observed(args...);
    return call_and_repeat(args...);
  }

 private:
  [[gnu::cold, gnu::noinline]] static CUresult call_observed(Args... args) {
    const uint64_t begin = now_ns();
    before_pool_ends<Self::kCall>(args...);
    const CUresult result = observe_call(Self::kCall, [&] { return call_and_repeat(args...); });
    after_pool_made<Self::kCall>(result, args...);
    if (!tell_other_memory<Self::kCall>(result, begin, args...)) tell_forwarded(Self::kCall, result, begin);
    return result;
  }
  static CUresult call_and_repeat(Args... args) {
    using Options = std::conditional_t<(detail::JitOptions::place_of_options<Args...>() < sizeof...(Args)),
                                       detail::JitOptions, detail::NoJitOptions>;
    const Options options(args...);
    const CUresult result = Self::entry()(args...);
    if (result != CUDA_ERROR_OUT_OF_MEMORY || Self::kRoom == cuda::kNotRepeated) [[likely]]
      return result;
    const auto room = [&](allocator::Effort effort) {
      return make_room(effort, device_named(Self::kRoom, args...));
    };
    return call_with_room(result, room, [&] {
      options.restore();
      return Self::entry()(args...);
    });
  }
};

}  // namespace cupool::hooks
