// Entry points for modules, libraries and functions. Any image loads; the kernels of kernels.hpp are in
// every one of them, and nothing else is.
#include <cuda.h>

#include <cstring>

#include "sim/charges.hpp"
#include "sim/entry.hpp"
#include "sim/kernels.hpp"

using namespace cupool::sim;

namespace {

CUresult load(Site& site, CUmodule* out, const void* image) {
  return in_context(site, [&](Context& context) -> CUresult {
    if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!charge(context, kModuleCharge)) return CUDA_ERROR_OUT_OF_MEMORY;
    auto module = std::make_shared<Module>();
    module->context_id = context.id;
    *out = state().modules.insert(std::move(module));
    return CUDA_SUCCESS;
  });
}

CUresult load_library(Site& site, CUlibrary* out, const void* image) {
  return in_driver(site, [&]() -> CUresult {
    if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = state().libraries.insert(std::make_shared<Module>());
    return CUDA_SUCCESS;
  });
}

// The same function asked for twice is the same handle.
CUfunction function_handle(KernelKind kind, std::uint64_t context_id, CUmodule module, CUlibrary library) {
  State& s = state();
  CUfunction known = nullptr;
  s.functions.each([&](const std::shared_ptr<Function>& f) {
    if (f->kernel == kind && f->module == module && f->library == library) known = f->handle;
  });
  if (known != nullptr) return known;
  auto function = std::make_shared<Function>();
  function->kernel = kind;
  function->context_id = context_id;
  function->module = module;
  function->library = library;
  function->handle = s.functions.insert(function);
  return function->handle;
}

template <typename Match>
void drop_functions(Match&& match) {
  State& s = state();
  std::vector<CUfunction> gone;
  s.functions.each([&](const std::shared_ptr<Function>& f) {
    if (match(*f)) gone.push_back(f->handle);
  });
  for (const CUfunction handle : gone) s.functions.remove(handle);
}

CUresult function_attribute(int* value, CUfunction_attribute which) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  return load(SIM_SITE(cuModuleLoadData), out, image);
}

CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int, CUjit_option*, void**) {
  return load(SIM_SITE(cuModuleLoadDataEx), out, image);
}

CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return load(SIM_SITE(cuModuleLoadFatBinary), out, image);
}

CUresult cuModuleLoad(CUmodule* out, const char* path) { return load(SIM_SITE(cuModuleLoad), out, path); }

CUresult cuModuleUnload(CUmodule handle) {
  return in_context(SIM_SITE(cuModuleUnload), [&](Context&) -> CUresult {
    if (state().modules.remove(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    drop_functions([&](const Function& f) { return f.module == handle; });
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  return in_context(SIM_SITE(cuModuleGetFunction), [&](Context&) -> CUresult {
    if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto module = state().modules.find(handle);
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    KernelKind kind;
    if (!kernel_by_name(name, kind)) return CUDA_ERROR_NOT_FOUND;
    *out = function_handle(kind, module->context_id, handle, nullptr);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr*, size_t*, CUmodule, const char*) {
  return in_context(SIM_SITE(cuModuleGetGlobal_v2), [](Context&) { return CUDA_ERROR_NOT_FOUND; });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return in_driver(SIM_SITE(cuModuleGetLoadingMode), [&]() -> CUresult {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryLoadData(CUlibrary* out, const void* image, CUjit_option*, void**, unsigned int,
                           CUlibraryOption*, void**, unsigned int) {
  return load_library(SIM_SITE(cuLibraryLoadData), out, image);
}

CUresult cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option*, void**, unsigned int,
                               CUlibraryOption*, void**, unsigned int) {
  return load_library(SIM_SITE(cuLibraryLoadFromFile), out, path);
}

CUresult cuLibraryUnload(CUlibrary handle) {
  return in_driver(SIM_SITE(cuLibraryUnload), [&]() -> CUresult {
    if (state().libraries.remove(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    drop_functions([&](const Function& f) { return f.library == handle; });
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  return in_driver(SIM_SITE(cuLibraryGetKernel), [&]() -> CUresult {
    if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (state().libraries.find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    KernelKind kind;
    if (!kernel_by_name(name, kind)) return CUDA_ERROR_NOT_FOUND;
    *out = reinterpret_cast<CUkernel>(function_handle(kind, 0, nullptr, handle));
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  return in_context(SIM_SITE(cuKernelGetFunction), [&](Context&) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto function = state().functions.find(reinterpret_cast<CUfunction>(kernel));
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *out = function->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction) {
  return in_context(SIM_SITE(cuFuncGetAttribute), [&](Context&) { return function_attribute(value, which); });
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute which, CUkernel, CUdevice) {
  return in_driver(SIM_SITE(cuKernelGetAttribute), [&] { return function_attribute(value, which); });
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) {
  return in_context(SIM_SITE(cuFuncSetAttribute), [](Context&) { return CUDA_SUCCESS; });
}

CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) {
  return in_context(SIM_SITE(cuFuncSetCacheConfig), [](Context&) { return CUDA_SUCCESS; });
}

CUresult cuFuncGetModule(CUmodule* out, CUfunction handle) {
  return in_context(SIM_SITE(cuFuncGetModule), [&](Context&) -> CUresult {
    const auto function = state().functions.find(handle);
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *out = function->module;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  return in_context(SIM_SITE(cuFuncGetName), [&](Context&) -> CUresult {
    const auto function = state().functions.find(handle);
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *name = kernel_name(function->kernel);
    return CUDA_SUCCESS;
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int, size_t) {
  return in_context(SIM_SITE(cuOccupancyMaxActiveBlocksPerMultiprocessor), [&](Context&) -> CUresult {
    if (blocks == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (state().functions.find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *blocks = 8;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
