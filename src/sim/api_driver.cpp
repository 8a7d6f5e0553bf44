// Entry points about the driver itself: start, version, error names, private tables (refused).
// cuInit is the only call that works before the driver runs, with those that need no driver at all.
#include <cuda.h>

#include <cstring>

#include "sim/entry.hpp"
#include "sim/options.hpp"

using namespace cupool::sim;

namespace {

struct ErrorText {
  CUresult code;
  const char* name;
};

constexpr ErrorText kErrors[] = {
#define SIM_ERROR(name) {name, #name},
#include "sim/errors.def"
#undef SIM_ERROR
};

const char* error_name(CUresult code) {
  for (const ErrorText& error : kErrors) {
    if (error.code == code) return error.name;
  }
  return nullptr;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned int flags) {
  const CUresult injected = SIM_SITE(cuInit).enter();
  if (injected != CUDA_SUCCESS) return injected;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (options().devices == 0) return CUDA_ERROR_NO_DEVICE;
  return start_driver() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDriverGetVersion(int* version) {
  const CUresult injected = SIM_SITE(cuDriverGetVersion).enter();
  if (injected != CUDA_SUCCESS) return injected;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = options().driver_version;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = error_name(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }

// The tables are private to NVIDIA's own libraries; a program that needs them cannot run here. One that has
// nothing in it, and that nobody knows, is there for all that.
CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  static const void* const kEmpty = nullptr;
  static constexpr char kItsId[] = "nobody knows it";
  static_assert(sizeof kItsId == sizeof id->bytes);
  const bool found = table != nullptr && id != nullptr && std::memcmp(id->bytes, kItsId, sizeof kItsId) == 0;
  if (table != nullptr) *table = found ? &kEmpty : nullptr;
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"
