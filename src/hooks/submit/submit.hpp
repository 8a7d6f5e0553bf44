// The path of every submission of work, whichever function makes it: a note to order/ before the real call
// and one after it. One place for all, so that the rules of order/ apply in the same way to a launch, a copy
// and a callback. Nothing is held across the real call: it may block, and it may call back.
#pragma once

#include <tuple>
#include <utility>

#include "base/clock.hpp"
#include "cuda/kinds.hpp"
#include "cuda/real.hpp"
#include "hooks/observe/tell.hpp"
#include "hooks/state/serving.hpp"
#include "hooks/submit/operands.hpp"
#include "hooks/submit/room.hpp"
#include "order/submission_gate.hpp"
#include "stats/counters.hpp"

namespace cupool::hooks {

// Which stream the handle 0 stands for.
enum class DefaultStream { kLegacy, kPerThread };

inline CUstream named(CUstream stream, DefaultStream zero) {
  if (stream != nullptr) [[likely]]
    return stream;
  return zero == DefaultStream::kLegacy ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
}

inline bool before_submit(order::Timeline& order, CUstream stream) {
  return order.before_submit(lane_of(stream), reinterpret_cast<driver::Stream>(stream));
}
// The error for a submission that before_submit() refused.
inline CUresult forbidden(const order::Timeline& order) {
  const CUresult result = to_result(order.refusal());
  note_result(result);
  return result;
}

// A submission that does not concern the pool: it is switched off, or the call comes from inside the driver.
template <typename Call>
CUresult forward_counted(Call&& call) {
  if (!Reentry::inside()) stats::count(stats::Counter::submissions);
  return call();
}

// Submits; all checks are done.
template <typename Call>
[[gnu::always_inline]] inline CUresult submit_now(order::Timeline& order, order::Lane lane, Call&& call) {
  CUresult result;
  const order::SubmissionGate::Pass pass;
  {
    const Reentry guard;
    result = call();
  }
  // A call that failed may still have submitted work, so the note is made in any case.
  order.after_submit(lane);
  stats::count(stats::Counter::submissions);
  note_result(result);
  return result;
}

// Where the pool serves. pre: `stream` went through named(). `call` makes the real call.
template <typename Call>
inline CUresult submit_serving(CUstream stream, Call&& call) {
  order::Timeline* const order = timeline_of(stream);
  // No memory of ours in that context: no hazard is possible.
  if (order == nullptr) {
    memory.order().note_early_work();
    return forward_counted(call);
  }
  if (!before_submit(*order, stream)) [[unlikely]]
    return forbidden(*order);
  return submit_now(*order, lane_of(stream), call);
}
// A submission, which the entry point tells the observer of.
template <typename Call>
inline CUresult submit(CUstream stream, Call&& call) {
  if (!is_serving()) [[unlikely]]
    return forward_counted(call);
  return submit_serving(stream, call);
}
// A submission that is all its entry point does: where nobody listens, one test finds that out as well.
template <typename... Params, typename... Args>
inline CUresult submit_only(CUstream stream, const cuda::Entry<CUresult (*)(Params...)>& entry,
                            const Args&... args) {
  const auto call = [&] { return entry(args...); };
  if (submits_plainly()) [[likely]]
    return submit_serving(stream, call);
  return tell_submitted(entry.call(), stream, submit(stream, call));
}
// A graph on its way into the stream: no wait of ours must be made there meanwhile.
template <typename Call>
inline CUresult submit_graph(CUstream stream, Call&& call) {
  if (!is_serving()) return forward_counted(call);
  const order::GraphLaunches::Place where(lane_of(stream), current_context());
  return submit(stream, [&] {
    const order::GraphLaunches::Launch under_way(where);
    return call();
  });
}
// A submission was refused for lack of memory: releases some on the stream's device, if the row's mark says
// so. True: repeat the whole submission, notes to order/ included.
[[gnu::cold]] inline bool make_room_for(CUstream stream, int where, allocator::Effort effort) {
  const order::Timeline* const order = where == cuda::kHere && is_serving() ? timeline_of(stream) : nullptr;
  return make_room(effort, where, order != nullptr ? order->context() : nullptr);
}
// The same as submit() for a body: the entry tells whether the call is repeated.
template <typename... Params, typename... Args>
inline CUresult submit_to(CUstream stream, const cuda::Entry<CUresult (*)(Params...)>& entry,
                          const Args&... args) {
  const auto call = [&] { return entry(args...); };
  const CUresult result = submit(stream, call);
  const auto room = [&](allocator::Effort effort) {
    return make_room_for(stream, device_named(entry.room(), args...), effort);
  };
  return call_with_room(result, room, [&] { return submit(stream, call); });
}

// A launch configuration without the permission to start before its predecessor has ended (programmatic
// stream serialization). It only permits: results are the same without it.
class InTurn {
 public:
  InTurn(const CUlaunchConfig* config, bool leans) : config_(config) {
    if (!leans || !overlaps(config) || config->numAttrs > kMost) return;
    copy_ = *config;
    copy_.attrs = attributes_;
    copy_.numAttrs = 0;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      if (!is_permission(config->attrs[i])) attributes_[copy_.numAttrs++] = config->attrs[i];
    }
    config_ = &copy_;
  }
  InTurn(const InTurn&) = delete;
  InTurn& operator=(const InTurn&) = delete;

  const CUlaunchConfig* config() const { return config_; }

  static bool overlaps(const CUlaunchConfig* config) {
    if (config == nullptr || config->attrs == nullptr) return false;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      if (is_permission(config->attrs[i])) return true;
    }
    return false;
  }

 private:
  // More than there are kinds of attributes.
  static constexpr unsigned kMost = 64;

  static bool is_permission(const CUlaunchAttribute& attribute) {
    return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
           attribute.value.programmaticStreamSerializationAllowed != 0;
  }

  const CUlaunchConfig* config_;
  CUlaunchConfig copy_;
  CUlaunchAttribute attributes_[kMost];
};

// The hook of a row that submits work. `Self` names its entry in the real table.
template <cuda::Kind kind, int place, typename Self, typename Function>
struct SubmitHook;

template <cuda::Kind kind, int place, typename Self, typename... Args>
struct SubmitHook<kind, place, Self, CUresult (*)(Args...)> {
  // Fast path, taken by nearly every submission: the arguments need not be saved, and the cost is a few
  // loads. Where hand-outs lean on work that is not over, the slow path asks whether this lane has waited.
  // No canary: nothing here is written through a pointer.
  __attribute__((no_stack_protector)) static CUresult call(Args... args) {
    const CUstream stream = stream_of(args...);
    order::Timeline* const order = memory.order().only();
    if (order != nullptr && submits_plainly() && stream != CU_STREAM_PER_THREAD &&
        !is_special(*order, args...) && for_each_operand<kShape>(is_plainly_good, args...)) [[likely]] {
      const order::Lane lane = order::lane_of_handle(reinterpret_cast<uintptr_t>(stream));
      if (!order->is_leaning()) [[likely]] {
        const Saved saved(args...);
        return saved.answer(submit_now(*order, lane, [&] { return Self::entry()(args...); }));
      }
    }
    return call_on_slow_path(args...);
  }

 private:
  static constexpr Shape kShape = shape_of(Self::kPlain);
  static_assert(Self::kRoom < 0, "the device of a submission is its stream's");

  // The arguments of a call that may have to be repeated. In memory: the compiler would rather keep them in
  // registers across the call, and save as many registers of the caller's.
  class SavedArguments {
   public:
    [[gnu::always_inline]] explicit SavedArguments(const Args&... args) : args_(args...) {
      asm volatile("" : "+m"(args_));
    }
    [[gnu::always_inline]] CUresult answer(CUresult result) const {
      if (result == CUDA_SUCCESS) [[likely]]
        return result;
      return std::apply([&](const Args&... args) { return call_again(result, args...); }, args_);
    }

   private:
    std::tuple<Args...> args_;
  };
  struct NoArguments {
    explicit NoArguments(const Args&...) {}
    static CUresult answer(CUresult result) { return result; }
  };
  using Saved = std::conditional_t<Self::kRoom != cuda::kNotRepeated, SavedArguments, NoArguments>;

  [[gnu::noinline]] static CUresult call_on_slow_path(Args... args) {
    if (is_slow_for(SlowReason::kWorkObserved)) [[unlikely]]
      return call_observed(args...);
    return call_and_repeat(args...);
  }
  // (In a plain copy the host may wait.)
  [[gnu::cold, gnu::noinline]] static CUresult call_observed(Args... args) {
    const uint64_t begin = now_ns();
    const CUresult result = call_and_repeat(args...);
    tell_submission(Self::kCall, stream_of(args...), result, begin, kIsPlain);
    return result;
  }
  [[gnu::noinline]] static CUresult call_and_repeat(Args... args) {
    const CUresult result = call_with_care(args...);
    return result == CUDA_SUCCESS || Self::kRoom == cuda::kNotRepeated ? result : call_again(result, args...);
  }
  [[gnu::cold, gnu::noinline]] static CUresult call_again(CUresult result, Args... args) {
    return call_with_room(
        result,
        [&](allocator::Effort effort) { return make_room_for(stream_of(args...), Self::kRoom, effort); },
        [&] { return call_with_care(args...); },
        [&](CUresult answer) { return lacks_memory(answer, args...); });
  }

  static CUresult call_with_care(Args... args) {
    if constexpr (kIsValueWait) memory.order().note_value_wait();
    if constexpr (kIsConfig) {
      return call_in_turn(args...);
    } else if constexpr (kIsGraph) {
      return submit_graph(stream_of(args...), [&] { return Self::entry()(args...); });
    } else {
      size_t looked_at = 0;
      Owners owners;
      const auto is_good = [&](CUdeviceptr address, uint64_t bytes) {
        ++looked_at;
        if constexpr (has_words(kShape)) return is_plainly_good(address, bytes) || is_good_word(address);
        return is_good_operand(address, bytes, &owners);
      };
      // (The driver does not look at a memset that is captured.)
      if (may_have_blocks() && !for_each_operand<kShape>(is_good, args...) &&
          !(is_memset(kShape) && memory.order().is_capturing() && is_capturing(stream_of(args...)))) {
        tell_failed_copy((looked_at - 1) / 2, args...);
        return refuse_operand(stream_of(args...), is_memset(kShape) || has_words(kShape));
      }
      const CUstream stream = stream_of(args...);
      // On memory of another context than the stream's.
      [[maybe_unused]] driver::Context maker = nullptr;
      bool is_across = false;
      // (A value may be what that context's work waits for.)
      if constexpr (kShape != Shape::kNone && !has_words(kShape)) {
        is_across = memory.order().only() == nullptr && owners.any_but(maker = context_of(stream));
        const order::Timeline* const old = is_across ? owners.wait_for_old_work(maker, stream) : nullptr;
        if (old != nullptr) return forbidden(*old);
      }
      const auto make = [&] {
        if constexpr (kShape != Shape::kNone && kHasPeerForm<Args...>) {
          constexpr Form kForm = kIsPlain ? Form::kPlain : Form::kOnStream;
          if (is_across && owners.must_be_named(maker, kForm)) [[unlikely]]
            return copy_between(owners, kForm, stream, args...);
        }
        return Self::entry()(args...);
      };
      return submit(stream, [&] { return kIsPlain && is_across ? owners.note_after(maker, make) : make(); });
    }
  }

  // A launch that may start before its predecessor in the stream has ended could overtake the stream's wait,
  // or earlier work of the stream. While any reused block relies on that order, the permission is dropped.
  template <typename... Rest>
  static CUresult call_in_turn(const CUlaunchConfig* config, Rest... rest) {
    const CUstream stream = stream_of(config, rest...);
    order::Timeline* const order = is_serving() ? timeline_of(stream) : nullptr;
    const bool leans = order != nullptr && order->is_leaning() && order::kDropOverlap &&
                       !(order->is_capturing() && is_capturing(stream));
    const InTurn in_turn(config, leans);
    return submit(stream, [&] { return Self::entry()(in_turn.config(), rest...); });
  }

  static constexpr cuda::KindRow kRow = cuda::row_of(kind);
  static constexpr bool kIsGraph = kRow.way == cuda::Way::kSubmitGraph;
  static constexpr bool kIsValueWait = kRow.way == cuda::Way::kSubmitValueWait;
  static constexpr bool kIsPlain = kRow.stream == cuda::StreamIn::kDefault;
  static constexpr bool kIsConfig = kRow.stream == cuda::StreamIn::kInConfig;

  static constexpr DefaultStream kZero =
      Self::kIsPerThread ? DefaultStream::kPerThread : DefaultStream::kLegacy;

  // The first version of the batch calls reports which copy failed, through the argument before the stream.
  static void tell_failed_copy([[maybe_unused]] size_t index, [[maybe_unused]] const Args&... args) {
    if constexpr (kShape == Shape::kBatch) {
      const auto& place_of_index = std::get<place - 1>(std::tie(args...));
      if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(place_of_index)>>) {
        if (place_of_index != nullptr) *place_of_index = index;
      }
    }
  }

  // Whether the call needs more than a note for its lane.
  static bool is_special([[maybe_unused]] const order::Timeline& order,
                         [[maybe_unused]] const Args&... args) {
    if constexpr (kIsValueWait || kIsGraph) return true;
    if constexpr (kIsConfig) return order.is_leaning() && InTurn::overlaps(std::get<0>(std::tie(args...)));
    return false;
  }

  static CUstream stream_of(const Args&... args) {
    const auto all = std::tie(args...);
    if constexpr (kRow.stream == cuda::StreamIn::kAtPlace) {
      static_assert(std::is_same_v<std::tuple_element_t<place, std::tuple<Args...>>, CUstream>,
                    "api.def names the wrong place for the stream of this function");
      return named(std::get<place>(all), kZero);
    } else if constexpr (kIsConfig) {
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
    return tell_submitted(Self::kCall, nullptr, submit_all(launches, count, flags));
  }

 private:
  static CUresult submit_all(CUDA_LAUNCH_PARAMS* launches, unsigned count, unsigned flags) {
    if (!is_serving() || launches == nullptr) return Self::entry()(launches, count, flags);
    for (unsigned i = 0; i < count; ++i) {
      const CUstream stream = stream_of(launches[i]);
      order::Timeline* const order = timeline_of(stream);
      if (order == nullptr) memory.order().note_early_work();
      if (order != nullptr && !before_submit(*order, stream)) return forbidden(*order);
    }
    const order::SubmissionGate::Pass pass;
    const auto call = [&] {
      const Reentry guard;
      return Self::entry()(launches, count, flags);
    };
    const CUresult result = call_with_room(
        call(), [](allocator::Effort effort) { return make_room(effort, Self::kRoom); }, call);
    for (unsigned i = 0; i < count; ++i) {
      const CUstream stream = stream_of(launches[i]);
      order::Timeline* const order = timeline_of(stream);
      if (order == nullptr) continue;
      order->after_submit(lane_of(stream));
      stats::count(stats::Counter::submissions);
    }
    note_result(result);
    return result;
  }

  static CUstream stream_of(const CUDA_LAUNCH_PARAMS& launch) {
    return named(launch.hStream, DefaultStream::kLegacy);
  }
};

}  // namespace cupool::hooks
