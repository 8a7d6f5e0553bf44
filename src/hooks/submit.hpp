// What every submission of work passes through, whichever function made it: a note before the real call and
// one after. One place for all, so that the rules of order/ are applied the same way to a launch, a copy and
// a callback. Nothing is held across the real call: it may block, and it may call back.
#pragma once

#include <tuple>
#include <utility>

#include "cuda/real.hpp"
#include "hooks/operands.hpp"
#include "hooks/serving.hpp"
#include "stats/counters.hpp"

namespace cupool::hooks {

// Which stream the handle 0 stands for.
enum class DefaultStream { kLegacy, kPerThread };

inline CUstream named(CUstream stream, DefaultStream zero) {
  if (stream != nullptr) [[likely]]
    return stream;
  return zero == DefaultStream::kLegacy ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
}

inline bool before_submit(order::Lane lane) { return pools.order().before_submit(lane); }
// What a submission is answered that before_submit() has forbidden.
inline CUresult forbidden() {
  const CUresult result = to_result(pools.order().refusal());
  note_result(result);
  return result;
}

// A call that failed may have submitted something all the same: the note is made in any case.
[[gnu::always_inline]] inline void after_submit(order::Lane lane, CUresult result) {
  pools.order().after_submit(lane);
  stats::count(stats::Counter::submissions);
  note_result(result);
}

// A submission that the pool has nothing to do with: it is switched off, or the driver called back.
template <typename Call>
CUresult forward_counted(Call&& call) {
  if (!Reentry::inside()) stats::count(stats::Counter::submissions);
  return call();
}

// Makes a submission that nothing stands in the way of any more.
template <typename Call>
[[gnu::always_inline]] inline CUresult submit_now(order::Lane lane, Call&& call) {
  CUresult result;
  {
    const Reentry guard;
    result = call();
  }
  after_submit(lane, result);
  return result;
}

// `stream` is named already; `call` makes the real call.
// `overlaps`: the work may start before what precedes it in the stream has ended.
template <typename Call>
inline CUresult submit(CUstream stream, Call&& call, bool overlaps = false) {
  if (!is_serving()) [[unlikely]]
    return forward_counted(call);
  const order::Lane lane = lane_of(stream);
  if (!before_submit(overlaps ? order::Lane::kOverlapping : lane)) [[unlikely]]
    return forbidden();
  return submit_now(lane, call);
}

inline bool overlaps(const CUlaunchConfig* config) {
  // A count without a list is the driver's to judge.
  if (config == nullptr || config->attrs == nullptr) return false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed != 0) {
      return true;
    }
  }
  return false;
}

// The hook of a row that submits work. `Self` names its entry in the real table.
template <cuda::Kind kind, int place, typename Self, typename Function>
struct SubmitHook;

template <cuda::Kind kind, int place, typename Self, typename... Args>
struct SubmitHook<kind, place, Self, CUresult (*)(Args...)> {
  // What nearly every submission is, looked at first: then the arguments need not be kept for later, and no
  // more is done than two loads before the call and one after it.
  static CUresult call(Args... args) {
    const CUstream stream = stream_of(args...);
    if (is_serving() && stream != CU_STREAM_PER_THREAD && !may_overlap(args...) &&
        for_each_operand<kShape>(is_plainly_good, args...)) [[likely]] {
      const order::Lane lane = order::lane_of_handle(reinterpret_cast<uintptr_t>(stream));
      if (pools.order().may_submit(lane)) [[likely]]
        return submit_now(lane, [&] { return Self::entry()(args...); });
    }
    return call_with_care(args...);
  }

 private:
  static constexpr Shape kShape = shape_of(Self::kPlain);

  [[gnu::noinline]] static CUresult call_with_care(Args... args) {
    size_t looked_at = 0;
    const auto is_good = [&](CUdeviceptr address, uint64_t bytes) {
      ++looked_at;
      return is_good_operand(address, bytes);
    };
    if (is_serving() && !for_each_operand<kShape>(is_good, args...)) {
      tell_failed_copy((looked_at - 1) / 2, args...);
      return refuse_operand(stream_of(args...));
    }
    return submit(
        stream_of(args...), [&] { return Self::entry()(args...); }, may_overlap(args...));
  }

  static constexpr DefaultStream kZero = kind == cuda::Kind::kStreamPerThread ||
                                                 kind == cuda::Kind::kConfigPerThread ||
                                                 kind == cuda::Kind::kDefaultPerThread
                                             ? DefaultStream::kPerThread
                                             : DefaultStream::kLegacy;

  // The first form of a batch says which of its copies it was: before the stream stands a place for that.
  static void tell_failed_copy([[maybe_unused]] size_t index, [[maybe_unused]] const Args&... args) {
    if constexpr (kShape == Shape::kBatch) {
      const auto& place_of_index = std::get<place - 1>(std::tie(args...));
      if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(place_of_index)>>) {
        if (place_of_index != nullptr) *place_of_index = index;
      }
    }
  }

  static bool may_overlap([[maybe_unused]] const Args&... args) {
    if constexpr (kind == cuda::Kind::kConfig || kind == cuda::Kind::kConfigPerThread) {
      return overlaps(std::get<0>(std::tie(args...)));
    }
    return false;
  }

  static CUstream stream_of(const Args&... args) {
    const auto all = std::tie(args...);
    if constexpr (kind == cuda::Kind::kStream || kind == cuda::Kind::kStreamPerThread) {
      static_assert(std::is_same_v<std::tuple_element_t<place, std::tuple<Args...>>, CUstream>,
                    "api.def names the wrong place for the stream of this function");
      return named(std::get<place>(all), kZero);
    } else if constexpr (kind == cuda::Kind::kConfig || kind == cuda::Kind::kConfigPerThread) {
      const CUlaunchConfig* const config = std::get<0>(all);
      return named(config != nullptr ? config->hStream : nullptr, kZero);
    } else {
      return named(nullptr, kZero);
    }
  }
};

// A list of launches, each with a stream of its own.
template <int place, typename Self>
struct SubmitHook<cuda::Kind::kList, place, Self, decltype(&cuLaunchCooperativeKernelMultiDevice)> {
  static CUresult call(CUDA_LAUNCH_PARAMS* launches, unsigned count, unsigned flags) {
    if (!is_serving() || launches == nullptr) return Self::entry()(launches, count, flags);
    for (unsigned i = 0; i < count; ++i) {
      if (!before_submit(lane(launches[i]))) return forbidden();
    }
    CUresult result;
    {
      const Reentry guard;
      result = Self::entry()(launches, count, flags);
    }
    for (unsigned i = 0; i < count; ++i) after_submit(lane(launches[i]), result);
    return result;
  }

 private:
  static order::Lane lane(const CUDA_LAUNCH_PARAMS& launch) {
    return lane_of(named(launch.hStream, DefaultStream::kLegacy));
  }
};

}  // namespace cupool::hooks
