// cuGetProcAddress, both versions: the newest form of a name that the asked-for version and the pretended
// driver version allow, in its legacy or per-thread-stream form. No lock: the table never changes.
// cuda.h's prototypes are of no use here, all pointers are alike.
#include "sim/proc_address.hpp"

#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "sim/faults.hpp"
#include "sim/options.hpp"

using cupool::sim::kProcRowCount;
using cupool::sim::kProcRows;
using cupool::sim::options;
using cupool::sim::ProcRow;

namespace {

// Before CUDA 7.0 a thread had no default stream of its own.
constexpr int kPerThreadSince = 7000;

struct Answer {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
};

Answer look_up(const char* name, int version, cuuint64_t flags) {
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  Answer answer;
  for (int i = 0; i < kProcRowCount; ++i) {
    const ProcRow& row = kProcRows[i];
    if (std::strcmp(row.name, name) != 0 || row.version > options().driver_version) continue;
    const bool other_form = per_thread && row.per_thread != nullptr;
    if (std::max(row.version, other_form ? kPerThreadSince : 0) > version) {
      if (answer.function == nullptr) answer.status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
      continue;
    }
    answer.function = other_form ? row.per_thread : row.plain;
    answer.status = CU_GET_PROC_ADDRESS_SUCCESS;
  }
  return answer;
}

CUresult get(const char* name, void** out, int version, cuuint64_t flags, Answer& answer) {
  constexpr cuuint64_t kKnown =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (name == nullptr || out == nullptr || (flags & ~kKnown) != 0 || version > options().driver_version) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  answer = look_up(name, version, flags);
  *out = answer.function;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

// The first form had no status to say "not found" with, so it says it by its result.
CUresult cuGetProcAddress(const char* name, void** out, int version, cuuint64_t flags) {
  const CUresult injected = SIM_SITE(cuGetProcAddress).enter();
  if (injected != CUDA_SUCCESS) return injected;
  Answer answer;
  const CUresult result = get(name, out, version, flags, answer);
  return result == CUDA_SUCCESS && answer.function == nullptr ? CUDA_ERROR_NOT_FOUND : result;
}

CUresult cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  const CUresult injected = SIM_SITE(cuGetProcAddress_v2).enter();
  if (injected != CUDA_SUCCESS) return injected;
  Answer answer;
  const CUresult result = get(name, out, version, flags, answer);
  if (result == CUDA_SUCCESS && status != nullptr) *status = answer.status;
  return result;
}

}  // extern "C"
