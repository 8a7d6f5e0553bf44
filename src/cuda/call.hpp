// The functions of api.def as numbers, so that a record of a call need not hold its name. Needs no CUDA
// header.
#pragma once

#include <cstdint>

namespace cupool::cuda {

enum class Call : uint16_t {
#define CUPOOL_ROW(symbol, like) symbol,
#include "cuda/api.def"
};

inline const char* name_of(Call call) {
  static constexpr const char* kNames[] = {
#define CUPOOL_ROW(symbol, like) #symbol,
#include "cuda/api.def"
  };
  return kNames[static_cast<uint16_t>(call)];
}

}  // namespace cupool::cuda
