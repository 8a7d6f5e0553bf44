// The memory that a copy or memset names. The driver refuses a call whose operand does not lie in one
// allocation, to the byte; it sees only our segments, so the same check is made here for blocks. The common
// case is read from the page map without a lock, in a few loads; anything else is looked up under locks
// before the call is refused. cuda/api.def says how the arguments of each function name memory. Owns nothing.
#pragma once

#include <string_view>
#include <tuple>

#include "cuda/real.hpp"
#include "hooks/sharing/blocks.hpp"
#include "hooks/submit/peer_copies.hpp"
#include "pool/page_map.hpp"

namespace cupool::hooks {

// kLine: every address among the arguments, with the last size. kBatch: lists of addresses and sizes. kWord*:
// a value that a stream writes or waits for. kWords: a list of them.
enum class Shape {
  kNone,
  kLine,
  kBatch,
  kBox2D,
  kBox3D,
  kSet8,
  kSet16,
  kSet32,
  kSet2D8,
  kSet2D16,
  kSet2D32,
  kWord32,
  kWord64,
  kWords,
};

namespace detail {

struct Named {
  std::string_view name;
  Shape shape;
};
#define CUPOOL_OPERANDS(name, shape) Named{#name, Shape::shape},
inline constexpr Named kNamed[] = {
#include "cuda/api.def"
};

// Bytes from the first to the last of `count` equal steps.
inline uint64_t span(uint64_t count, uint64_t step, uint64_t last) {
  uint64_t bytes = 0;
  return __builtin_mul_overflow(count - 1, step, &bytes) || __builtin_add_overflow(bytes, last, &bytes)
             ? ~uint64_t{0}
             : bytes;
}

// One side of a shaped copy.
template <typename Visit>
bool visit_side(Visit&& visit, CUmemorytype type, CUdeviceptr device, const void* host, uint64_t x,
                uint64_t y, uint64_t z, uint64_t pitch, uint64_t rows, uint64_t width, uint64_t height,
                uint64_t depth) {
  if (type == CU_MEMORYTYPE_ARRAY || width == 0 || height == 0 || depth == 0) return true;
  const CUdeviceptr start = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
  if (pitch == 0) pitch = width;
  // Height 0 of a 3-D copy: slices follow each other without a gap.
  if (rows == 0) rows = height;
  return visit(start + x + (y + z * rows) * pitch, span(depth, pitch * rows, span(height, pitch, width)));
}

// One of a list of operations on values; those that name no memory are good.
template <typename Visit>
bool visit_word(Visit&& visit, const CUstreamBatchMemOpParams& operation) {
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return visit(operation.waitValue.address, sizeof(cuuint32_t));
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return visit(operation.waitValue.address, sizeof(cuuint64_t));
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return visit(operation.writeValue.address, sizeof(cuuint32_t));
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return visit(operation.writeValue.address, sizeof(cuuint64_t));
    default:
      return true;
  }
}

}  // namespace detail

constexpr Shape shape_of(std::string_view name) {
  for (const detail::Named& named : detail::kNamed) {
    if (named.name == name) return named.shape;
  }
  return Shape::kNone;
}

// Calls `visit(address, bytes)` for every operand until one returns false; true if none did.
template <Shape shape, typename Visit, typename... Args>
bool for_each_operand(Visit&& visit, const Args&... args) {
  [[maybe_unused]] const auto all = std::tie(args...);
  if constexpr (shape == Shape::kLine) {
    size_t bytes = 0;
    const auto take_size = [&]<typename T>(const T& value) {
      if constexpr (std::is_same_v<T, size_t>) bytes = value;
    };
    (take_size(args), ...);
    const auto take_address = [&]<typename T>(const T& value) {
      if constexpr (std::is_same_v<T, CUdeviceptr>) return visit(value, bytes);
      if constexpr (std::is_same_v<T, void*> || std::is_same_v<T, const void*>)
        return visit(reinterpret_cast<CUdeviceptr>(value), bytes);
      return true;
    };
    return (take_address(args) && ...);
  } else if constexpr (shape == Shape::kBatch) {
    const auto [to, from, sizes, count] =
        std::tie(std::get<0>(all), std::get<1>(all), std::get<2>(all), std::get<3>(all));
    if (to == nullptr || from == nullptr || sizes == nullptr) return true;
    for (size_t i = 0; i < count; ++i) {
      if (!visit(to[i], sizes[i]) || !visit(from[i], sizes[i])) return false;
    }
    return true;
  } else if constexpr (shape == Shape::kBox2D) {
    const auto* const c = std::get<0>(all);
    return c == nullptr ||
           (detail::visit_side(visit, c->dstMemoryType, c->dstDevice, c->dstHost, c->dstXInBytes, c->dstY, 0,
                               c->dstPitch, 0, c->WidthInBytes, c->Height, 1) &&
            detail::visit_side(visit, c->srcMemoryType, c->srcDevice, c->srcHost, c->srcXInBytes, c->srcY, 0,
                               c->srcPitch, 0, c->WidthInBytes, c->Height, 1));
  } else if constexpr (shape == Shape::kBox3D) {
    const auto* const c = std::get<0>(all);
    return c == nullptr ||
           (detail::visit_side(visit, c->dstMemoryType, c->dstDevice, c->dstHost, c->dstXInBytes, c->dstY,
                               c->dstZ, c->dstPitch, c->dstHeight, c->WidthInBytes, c->Height, c->Depth) &&
            detail::visit_side(visit, c->srcMemoryType, c->srcDevice, c->srcHost, c->srcXInBytes, c->srcY,
                               c->srcZ, c->srcPitch, c->srcHeight, c->WidthInBytes, c->Height, c->Depth));
  } else if constexpr (shape == Shape::kSet8 || shape == Shape::kSet16 || shape == Shape::kSet32) {
    constexpr uint64_t kUnit = shape == Shape::kSet8 ? 1 : shape == Shape::kSet16 ? 2 : 4;
    const size_t count = std::get<2>(all);
    return count == 0 || visit(std::get<0>(all), detail::span(count, kUnit, kUnit));
  } else if constexpr (shape == Shape::kWord32 || shape == Shape::kWord64) {
    return visit(std::get<1>(all), shape == Shape::kWord32 ? sizeof(cuuint32_t) : sizeof(cuuint64_t));
  } else if constexpr (shape == Shape::kWords) {
    // (The driver refuses a longer list.)
    constexpr unsigned kMost = 256;
    const CUstreamBatchMemOpParams* const list = std::get<2>(all);
    for (unsigned i = 0; std::get<1>(all) <= kMost && list != nullptr && i < std::get<1>(all); ++i) {
      if (!detail::visit_word(visit, list[i])) return false;
    }
    return true;
  } else if constexpr (shape != Shape::kNone) {
    constexpr uint64_t kUnit = shape == Shape::kSet2D8 ? 1 : shape == Shape::kSet2D16 ? 2 : 4;
    const size_t width = std::get<3>(all);
    const size_t height = std::get<4>(all);
    return width == 0 || height == 0 ||
           visit(std::get<0>(all), detail::span(height, std::get<1>(all), detail::span(width, kUnit, kUnit)));
  }
  return true;
}

// Lock-free check: true if the operand lies in a block of the pool, or far from any memory of ours. False:
// undecided.
inline bool is_plainly_good(CUdeviceptr address, uint64_t bytes) {
  const auto sight = pool::page_map.look(address, bytes);
  if (sight == pool::PageMap::Sight::kNotOurs) return !memory.has_dedicated() && !imports.any();
  return sight == pool::PageMap::Sight::kHeld;
}

// Whether the driver would have accepted the operand; one in memory of ours is added to `owners`. Takes
// locks.
bool is_good_operand(CUdeviceptr address, uint64_t bytes, Owners* owners);
// The same for a value that a stream writes or waits for: the driver only checks whether an allocation of its
// own, with the size it rounds up to, is there.
bool is_good_word(CUdeviceptr address);
constexpr bool has_words(Shape shape) {
  return shape == Shape::kWord32 || shape == Shape::kWord64 || shape == Shape::kWords;
}
constexpr bool is_memset(Shape shape) { return shape >= Shape::kSet8 && shape <= Shape::kSet2D32; }
// The error for a call with a bad operand on this stream.
CUresult refuse_operand(CUstream stream, bool is_memset = true);

}  // namespace cupool::hooks
