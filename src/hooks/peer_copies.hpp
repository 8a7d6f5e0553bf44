// Plain copies between mapped memory of two devices, or of one that is not the copying one. The driver
// follows its own allocations there, whichever device makes the copy; mapped memory only that device reaches
// which was given access. So such a copy is made as one between contexts, each side reached from its own
// device. Only a copy whose operands are looked up anyway comes here, and with several contexts all are. Owns
// nothing.
#pragma once

#include <cstddef>

#include "cuda/real.hpp"
#include "driver/driver.hpp"

namespace cupool::hooks {

// The contexts of those operands that are mapped memory of ours, in order: target, then source.
class MappedOwners {
 public:
  void add(driver::Context context) {
    if (count_ < kSides) contexts_[count_] = context;
    ++count_;
  }
  bool any() const { return count_ != 0; }
  // Whether both sides are, and not both on the device of `maker`, whose stream makes the copy; null: a
  // context without memory of ours.
  bool are_apart_from(driver::Context maker) const {
    return count_ == kSides && !(contexts_[0] == maker && contexts_[1] == maker) && devices_differ(maker);
  }
  CUcontext to() const { return reinterpret_cast<CUcontext>(contexts_[0]); }
  CUcontext from() const { return reinterpret_cast<CUcontext>(contexts_[1]); }

 private:
  static constexpr unsigned kSides = 2;
  bool devices_differ(driver::Context maker) const;

  driver::Context contexts_[kSides] = {};
  unsigned count_ = 0;
};

// The copy as one between contexts, on a stream whose handle 0 has been resolved. The last argument is what
// the program named.
CUresult copy_between(const MappedOwners& owners, CUstream stream, CUdeviceptr to, CUdeviceptr from,
                      size_t bytes, CUstream = nullptr);
CUresult copy_between(const MappedOwners& owners, CUstream stream, const CUDA_MEMCPY2D* copy,
                      CUstream = nullptr);
CUresult copy_between(const MappedOwners& owners, CUstream stream, const CUDA_MEMCPY3D* copy,
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
