// The body of every copy and memset. Pageable sources are taken at the call, as the driver does by staging;
// inside a capture nothing is read until the graph runs. Under the state mutex.
#include "sim/copies.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include "sim/capture.hpp"
#include "sim/kernels.hpp"
#include "sim/scheduler.hpp"
#include "sim/state.hpp"

namespace cupool::sim {
namespace {

enum class Where { kDevice, kPinned, kPageable, kArray };

Where where(const Side& side) {
  if (side.array != nullptr) return Where::kArray;
  if (state().arena_of(side.address) != nullptr) return Where::kDevice;
  return state().allocations.holding(side.address) != nullptr ? Where::kPinned : Where::kPageable;
}

// Bytes from the first to the last byte the box covers on this side.
std::uint64_t extent(const Side& side, const Box& box) {
  return (box.depth - 1) * side.slice + (box.height - 1) * side.pitch + box.width;
}

bool is_host_chunk(const Side& side) {
  if (where(side) != Where::kDevice) return false;
  const Allocation* const found = state().allocations.holding(side.address + side.offset);
  return found != nullptr && found->is_host_chunk();
}

std::shared_ptr<Context> owner_of(const Side& side) {
  if (side.context != nullptr || where(side) != Where::kDevice) return side.context;
  const Allocation* const found = state().allocations.holding(side.address + side.offset);
  return found == nullptr ? nullptr : state().context_by_id(found->context_id);
}

Side completed(Side side, int device) {
  if (side.device == CU_DEVICE_INVALID) side.device = device;
  if (side.array == nullptr) return side;
  side.pitch = side.array->row;
  side.slice = side.array->row * side.array->rows;
  return side;
}

bool lies_inside(const Side& side, const Box& box) {
  switch (where(side)) {
    case Where::kArray:
      return side.offset + extent(side, box) <= side.array->bytes();
    case Where::kDevice:
      return state().allocations.holds(side.address + side.offset, extent(side, box));
    default:
      return side.address != 0;
  }
}

// Where the bytes are when the operation runs; null: they are gone, or not for this device.
std::uint8_t* locate(const Side& side, const Box& box, Touch touch) {
  if (side.array != nullptr) return array_bytes(*side.array) + side.offset;
  const CUdeviceptr p = side.address + side.offset;
  const Arena* const arena = state().arena_of(p);
  if (arena == nullptr) return reinterpret_cast<std::uint8_t*>(p);
  const std::uint64_t bytes = extent(side, box);
  if (!arena->mapped(p, bytes)) return nullptr;
  const bool anywhere = arena != state().reservations.get();
  return anywhere || state().allocations.mapped_for(side.device, p, bytes, touch) ? arena->bytes_at(p)
                                                                                  : nullptr;
}

void move_box(std::uint8_t* to, const Side& to_side, const std::uint8_t* from, const Side& from_side,
              const Box& box) {
  for (std::uint64_t z = 0; z < box.depth; ++z) {
    for (std::uint64_t y = 0; y < box.height; ++y) {
      std::memmove(to + z * to_side.slice + y * to_side.pitch,
                   from + z * from_side.slice + y * from_side.pitch, box.width);
    }
  }
}

void add_touch(Work& work, const Side& side, const Box& box) {
  if (where(side) != Where::kDevice) return;
  const CUdeviceptr lo = side.address + side.offset;
  work.touches.push_back(Span{lo, lo + extent(side, box)});
}

std::shared_ptr<Work> copy_work(const char* what, const Side& to, const Side& from, const Box& box,
                                bool take_now) {
  auto work = std::make_shared<Work>();
  work->what = what;
  add_touch(*work, to, box);
  add_touch(*work, from, box);
  std::shared_ptr<std::vector<std::uint8_t>> staged;
  if (take_now) {
    const auto* const first = reinterpret_cast<const std::uint8_t*>(from.address + from.offset);
    staged = std::make_shared<std::vector<std::uint8_t>>(first, first + extent(from, box));
  }
  work->run = [to, from, box, staged]() -> CUresult {
    const std::uint8_t* const source = staged != nullptr ? staged->data() : locate(from, box, Touch::kRead);
    std::uint8_t* const target = locate(to, box, Touch::kWrite);
    if (source == nullptr || target == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    move_box(target, to, source, from, box);
    return CUDA_SUCCESS;
  };
  return work;
}

}  // namespace

Side within(CUcontext context, Side side) {
  const auto found = state().contexts.find(context);
  if (found != nullptr) side.device = found->device;
  side.context = found;
  return side;
}

CUresult submit_copy(const StreamPtr& stream, const char* what, const Side& to_asked, const Side& from_asked,
                     const Box& box, Waits waits) {
  const Side to = completed(to_asked, stream->context->device);
  const Side from = completed(from_asked, stream->context->device);
  if (waits == Waits::kSync) {
    const CUresult allowed = check_stream_wait(*stream);
    if (allowed != CUDA_SUCCESS) return allowed;
  }
  if (box.width == 0 || box.height == 0 || box.depth == 0) return CUDA_SUCCESS;
  if (!lies_inside(to, box) || !lies_inside(from, box)) return CUDA_ERROR_INVALID_VALUE;
  const bool capturing = stream->capture != nullptr;
  const bool from_pageable = where(from) == Where::kPageable;
  const bool to_pageable = where(to) == Where::kPageable;
  const bool on_host = from_pageable || to_pageable || where(from) == Where::kPinned ||
                       where(to) == Where::kPinned || is_host_chunk(from) || is_host_chunk(to);
  const CUresult result = submit(stream, copy_work(what, to, from, box, from_pageable && !capturing));
  if (result != CUDA_SUCCESS || capturing) return result;
  if ((waits == Waits::kSync && on_host) || to_pageable) {
    // Counted as seen even where only the staging is promised: programs go on as if it were.
    complete(stream_target(*stream));
  }
  return stream->context->error;
}

CUresult submit_plain_copy(const StreamPtr& stream, const char* what, const Side& to, const Side& from,
                           const Box& box, Waits waits) {
  const auto to_owner = owner_of(to);
  const auto from_owner = owner_of(from);
  if (to_owner == nullptr || from_owner == nullptr) return submit_copy(stream, what, to, from, box, waits);
  const auto for_each_other = [&](auto&& visit) {
    for (const Context* one : {to_owner.get(), from_owner.get()}) {
      if (one != stream->context) visit(*one->legacy);
    }
  };
  for_each_other([&](Stream& legacy) { order_after(*stream, stream_target(legacy)); });
  const CUresult result = submit_copy(stream, what, to, from, box, waits);
  for_each_other([&](Stream& legacy) { order_after(legacy, stream->clock); });
  return result;
}

std::shared_ptr<const Work> copy_work(const char* what, int device, Side to, Side from, const Box& box) {
  to = completed(std::move(to), device);
  from = completed(std::move(from), device);
  const bool is_there =
      box.width != 0 && box.height != 0 && box.depth != 0 && lies_inside(to, box) && lies_inside(from, box);
  return is_there ? copy_work(what, to, from, box, false) : nullptr;
}

std::shared_ptr<const Work> memset_work(const char* what, int device, CUdeviceptr p, std::uint64_t pitch,
                                        unsigned pattern, unsigned unit, std::uint64_t width,
                                        std::uint64_t height) {
  Box box;
  box.width = width * unit;
  box.height = height;
  Side to = linear(p);
  to.pitch = pitch;
  to.device = device;
  if (p % unit != 0 || where(to) == Where::kPageable || !lies_inside(to, box)) return nullptr;
  auto work = std::make_shared<Work>();
  work->what = what;
  add_touch(*work, to, box);
  work->run = [=]() -> CUresult {
    std::uint8_t* const target = locate(to, box, Touch::kWrite);
    if (target == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (std::uint64_t y = 0; y < height; ++y) {
      std::uint8_t* const row = target + y * pitch;
      if (unit == 1) {
        std::memset(row, static_cast<int>(pattern & 0xff), width);
      } else {
        for (std::uint64_t x = 0; x < width; ++x) std::memcpy(row + x * unit, &pattern, unit);
      }
    }
    return CUDA_SUCCESS;
  };
  return work;
}

CUresult submit_memset(const StreamPtr& stream, const char* what, CUdeviceptr p, std::uint64_t pitch,
                       unsigned pattern, unsigned unit, std::uint64_t width, std::uint64_t height) {
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  auto work = memset_work(what, stream->context->device, p, pitch, pattern, unit, width, height);
  return work == nullptr ? CUDA_ERROR_INVALID_VALUE : submit(stream, std::move(work));
}

}  // namespace cupool::sim
