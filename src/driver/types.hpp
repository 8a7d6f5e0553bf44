// The words of all seams to the driver: its handles, its answers, the number of a device. Without a CUDA
// header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cupool::driver {

// 0 is success, any other number is the driver's own error.
using Status = int;
inline constexpr Status kSuccess = 0;
inline constexpr Status kInvalidValue = 1;
inline constexpr Status kOutOfMemory = 2;
inline constexpr Status kInvalidContext = 201;
inline constexpr Status kNotReady = 600;
inline constexpr Status kNotSupported = 801;
inline constexpr Status kUnknown = 999;

// In place of a device's number.
inline constexpr int kEveryDevice = -1;

using Address = uint64_t;
using Context = struct ContextTag*;
using Event = struct EventTag*;
using Stream = struct StreamTag*;

}  // namespace cupool::driver
