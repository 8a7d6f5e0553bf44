// The real driver: one pointer per row of api.def, always callable. Until the first call each pointer is a
// stub that finds libcuda.so.1 and calls again; afterwards it is the driver's function, or one that answers
// NOT_FOUND where this driver lacks it. No lock: finding is idempotent, because a thread may get here from
// inside the loader, or recursively from the libcuda that it is loading.
#pragma once

#include <atomic>

#include "cuda/cuda_api.hpp"

namespace cupool::cuda {

// Fills the table if libcuda.so.1 is in the process, or, with kLoad, can be loaded.
enum class Search { kLoaded, kLoad };
bool find_driver(Search search);

// The dynamic linker's own dlsym, not the one that this library exports.
using Dlsym = void* (*)(void* handle, const char* name);
Dlsym real_dlsym();
// Any function of the loader (dlsym, dlopen, …) that this library exports too, in the C library's own
// version.
void* loader_function(const char* name);

// The driver's exported function of that name, or null. pre: find_driver was successful.
void* driver_symbol(const char* name);

// The program has begun to use CUDA; called once by find_driver, defined by the layer above.
void on_first_use();

template <typename Function>
class Entry;

template <typename... Args>
class Entry<CUresult (*)(Args...)> {
 public:
  using Function = CUresult (*)(Args...);

  constexpr explicit Entry(Function initial) : function_(initial) {}

  CUresult operator()(Args... args) const { return get()(args...); }
  Function get() const { return function_.load(std::memory_order_relaxed); }
  void* address() const { return reinterpret_cast<void*>(get()); }

  // Whether this driver has the function. pre: find_driver was successful.
  bool present() const { return get() != absent; }

  void set(void* found) {
    function_.store(found != nullptr ? reinterpret_cast<Function>(found) : absent, std::memory_order_relaxed);
  }

  // The initial value of the pointer, until the driver is found; `Self` names its entry.
  template <typename Self>
  static CUresult first(Args... args) {
    if (!find_driver(Search::kLoad)) return CUDA_ERROR_NOT_INITIALIZED;
    return Self::entry()(args...);
  }

 private:
  static CUresult absent(Args...) { return CUDA_ERROR_NOT_FOUND; }

  std::atomic<Function> function_;
};

namespace entries {
#define CUPOOL_ROW(kind, symbol, like, place)       \
  struct symbol {                                   \
    static constexpr const char* kPlain = #like;    \
    static const Entry<decltype(&::like)>& entry(); \
  };
#include "cuda/api.def"
}  // namespace entries

struct Real {
#define CUPOOL_ROW(kind, symbol, like, place) \
  Entry<decltype(&::like)> symbol{Entry<decltype(&::like)>::template first<entries::symbol>};
#include "cuda/api.def"
};

[[gnu::visibility("hidden")]] extern constinit Real real;

#define CUPOOL_ROW(kind, symbol, like, place) \
  inline const Entry<decltype(&::like)>& entries::symbol::entry() { return real.symbol; }
#include "cuda/api.def"

}  // namespace cupool::cuda
