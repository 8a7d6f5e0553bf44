// Copies by a stream of one context on memory of another, for which the driver asks for no peer access. They
// come after the old work on that memory, and its context knows of them where the driver's free would wait
// for them. To or from mapped memory, plain ones and those that involve a second device are made as copies
// between contexts: the driver knows the context only of its own allocations. Only a copy whose operands are
// looked up anyway comes here; with several contexts all are. Owns nothing.
#pragma once

#include <cstddef>
#include <optional>

#include "cuda/real.hpp"
#include "driver/driver.hpp"
#include "order/submission_gate.hpp"
#include "order/timeline.hpp"

namespace cupool::hooks {

// The context of a stream whose handle 0 has been resolved; null: it has no memory of ours.
driver::Context context_of(CUstream stream);

// kPlain: the program named no stream, and the copy is ordered as work of the legacy streams of both
// contexts.
enum class Form { kPlain, kOnStream };

// The contexts of the operands of one call that are memory of ours.
class Owners {
 public:
  void add(driver::Context context, driver::Address block, bool is_mapped);
  // Whether there is one besides `maker`, the context of the stream that does the work.
  bool any_but(driver::Context maker) const {
    return count_ > 1 || (count_ == 1 && all_[0].context != maker);
  }
  // Before the work of the stream. Not null: it must not be submitted, because the stream cannot wait for the
  // old work of this timeline.
  order::Timeline* wait_for_old_work(driver::Context maker, CUstream stream) const;
  // Makes a copy that is ordered before all later work of these contexts, too, and notes it in them before
  // the submission gate may close. (If the maker has no memory of ours, submit() has not announced it.)
  template <typename Call>
  CUresult note_after(driver::Context maker, Call&& call) const {
    std::optional<order::SubmissionGate::Pass> pass;
    if (maker == nullptr) pass.emplace();
    const CUresult result = call();
    note_work(maker);
    return result;
  }

  // Whether the driver, which does not know whose mapped memory is, must be told the contexts: to order a
  // copy that names no stream, or because not both operands are on the device of `maker`.
  bool must_be_named(driver::Context maker, Form form) const {
    if (!has_mapped_ || operands_ != kSides || (sides_[0] == maker && sides_[1] == maker)) return false;
    return form == Form::kPlain || devices_differ(maker);
  }
  CUcontext to() const { return reinterpret_cast<CUcontext>(sides_[0]); }
  CUcontext from() const { return reinterpret_cast<CUcontext>(sides_[1]); }

 private:
  static constexpr unsigned kSides = 2;
  // A batch may name more: then all contexts count, with all that they have handed out.
  static constexpr unsigned kMost = 4;
  struct Owner {
    driver::Context context = nullptr;
    order::Epoch leant_on = 0;  // the old work of its operands is done with this
  };
  bool devices_differ(driver::Context maker) const;
  void note_work(driver::Context maker) const;
  const Owner* find(driver::Context context) const;
  template <typename Visit>
  void for_each_but(driver::Context maker, Visit&& visit) const;

  driver::Context sides_[kSides] = {};  // in order: target, then source
  Owner all_[kMost] = {};
  unsigned operands_ = 0;
  bool has_mapped_ = false;
  unsigned count_ = 0;
};

// The copy as one between contexts, on a stream whose handle 0 has been resolved.
CUresult copy_between(const Owners& owners, Form form, CUstream stream, CUdeviceptr to, CUdeviceptr from,
                      size_t bytes, CUstream = nullptr);
CUresult copy_between(const Owners& owners, Form form, CUstream stream, const CUDA_MEMCPY2D* copy,
                      CUstream = nullptr);
CUresult copy_between(const Owners& owners, Form form, CUstream stream, const CUDA_MEMCPY3D* copy,
                      CUstream = nullptr);

// Whether these are the arguments of one of them.
template <typename... Args>
inline constexpr bool kHasPeerForm = false;
template <>
inline constexpr bool kHasPeerForm<CUdeviceptr, CUdeviceptr, size_t> = true;
template <>
inline constexpr bool kHasPeerForm<CUdeviceptr, CUdeviceptr, size_t, CUstream> = true;
template <>
inline constexpr bool kHasPeerForm<const CUDA_MEMCPY2D*> = true;
template <>
inline constexpr bool kHasPeerForm<const CUDA_MEMCPY2D*, CUstream> = true;
template <>
inline constexpr bool kHasPeerForm<const CUDA_MEMCPY3D*> = true;
template <>
inline constexpr bool kHasPeerForm<const CUDA_MEMCPY3D*, CUstream> = true;

}  // namespace cupool::hooks
