// Entry points for CUDA arrays, plain and mipmapped. They take memory of the device like any allocation, so a
// pool that holds too much must give some back for them.
#include <cuda.h>

#include "sim/arrays.hpp"
#include "sim/capture.hpp"
#include "sim/entry.hpp"

using namespace cupool::sim;

namespace {

CUresult create(Context& context, CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult allowed = check_unsafe_call();
  if (allowed != CUDA_SUCCESS) return allowed;
  CUresult error = CUDA_SUCCESS;
  auto array = make_array(shape, context.device, context.id, error);
  if (array == nullptr) return error;
  *out = state().arrays.insert(std::move(array));
  return CUDA_SUCCESS;
}

CUDA_ARRAY3D_DESCRIPTOR level_shape(const CUDA_ARRAY3D_DESCRIPTOR& top, unsigned level) {
  CUDA_ARRAY3D_DESCRIPTOR shape = top;
  const auto halved = [&](size_t n) -> size_t { return n == 0 ? 0 : std::max<size_t>(n >> level, 1); };
  shape.Width = halved(top.Width);
  shape.Height = halved(top.Height);
  shape.Depth = halved(top.Depth);
  return shape;
}

void destroy_levels(const SimArray& mipmap) {
  for (const CUarray level : mipmap.levels) {
    if (const auto array = state().arrays.remove(level)) release_array(*array);
  }
}

}  // namespace

extern "C" {

CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* d) {
  return in_context(SIM_SITE(cuArrayCreate_v2), [&](Context& context) -> CUresult {
    if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR shape = {};
    shape.Width = d->Width;
    shape.Height = d->Height;
    shape.Format = d->Format;
    shape.NumChannels = d->NumChannels;
    return create(context, out, shape);
  });
}

CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
  return in_context(SIM_SITE(cuArray3DCreate_v2), [&](Context& context) -> CUresult {
    return shape == nullptr ? CUDA_ERROR_INVALID_VALUE : create(context, out, *shape);
  });
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  return in_context(SIM_SITE(cuArrayGetDescriptor_v2), [&](Context&) -> CUresult {
    const auto array = state().arrays.find(handle);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = {array->shape.Width, array->shape.Height, array->shape.Format, array->shape.NumChannels};
    return CUDA_SUCCESS;
  });
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  return in_context(SIM_SITE(cuArray3DGetDescriptor_v2), [&](Context&) -> CUresult {
    const auto array = state().arrays.find(handle);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = array->shape;
    return CUDA_SUCCESS;
  });
}

CUresult cuArrayDestroy(CUarray handle) {
  return in_context(SIM_SITE(cuArrayDestroy), [&](Context& context) -> CUresult {
    if (state().arrays.find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult allowed = check_unsafe_call();
    if (allowed != CUDA_SUCCESS) return allowed;
    complete(context_target(context));
    if (const auto array = state().arrays.remove(handle)) release_array(*array);
    return CUDA_SUCCESS;
  });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* shape,
                                unsigned int levels) {
  return in_context(SIM_SITE(cuMipmappedArrayCreate), [&](Context& context) -> CUresult {
    if (out == nullptr || shape == nullptr || levels == 0 || levels > 32) return CUDA_ERROR_INVALID_VALUE;
    auto mipmap = std::make_shared<SimArray>();
    for (unsigned level = 0; level < levels; ++level) {
      CUarray one = nullptr;
      const CUresult result = create(context, &one, level_shape(*shape, level));
      if (result != CUDA_SUCCESS) {
        destroy_levels(*mipmap);
        return result;
      }
      mipmap->levels.push_back(one);
    }
    *out = state().mipmaps.insert(std::move(mipmap));
    return CUDA_SUCCESS;
  });
}

CUresult cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned int level) {
  return in_context(SIM_SITE(cuMipmappedArrayGetLevel), [&](Context&) -> CUresult {
    const auto mipmap = state().mipmaps.find(handle);
    if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (out == nullptr || level >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
    *out = mipmap->levels[level];
    return CUDA_SUCCESS;
  });
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  return in_context(SIM_SITE(cuMipmappedArrayDestroy), [&](Context& context) -> CUresult {
    if (state().mipmaps.find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    complete(context_target(context));
    if (const auto mipmap = state().mipmaps.remove(handle)) destroy_levels(*mipmap);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
