// The real driver: one pointer per row of api.def, always callable. Until the first call each pointer is a
// stub that finds libcuda.so.1 and calls again; afterwards it is the driver's function, or one that answers
// NOT_FOUND where this driver lacks it. No lock: finding is idempotent, because a thread may get here from
// inside the loader, or recursively from the libcuda that it is loading.
#pragma once

#include <atomic>
#include <string_view>

#include "base/held_locks.hpp"
#include "cuda/call.hpp"
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

// Which device must have room before a refused call is made again: the place of the argument that names it,
// or one of these.
inline constexpr int kHere = -1;      // the device of the stream or the current context
inline constexpr int kAnywhere = -2;  // any device: the call does not tell
inline constexpr int kNotRepeated = -3;

consteval int room_of(std::string_view name) {
  if (name.ends_with("_ptsz")) name.remove_suffix(5);
#define CUPOOL_ROOM(row, where) \
  if (name == #row) return where;
#include "cuda/api.def"
  return kNotRepeated;
}

template <typename Function>
class Entry;

template <typename... Args>
class Entry<CUresult (*)(Args...)> {
 public:
  using Function = CUresult (*)(Args...);

  constexpr Entry(Function initial, Call call, int room)
      : function_(initial), call_(call), room_(static_cast<int16_t>(room)) {}

  CUresult operator()(Args... args) const {
    check_driver_call();
    return get()(args...);
  }
  Function get() const { return function_.load(std::memory_order_relaxed); }
  void* address() const { return reinterpret_cast<void*>(get()); }

  Call call() const { return call_; }
  // Which device a repetition needs room on; read after a refusal alone.
  int room() const { return room_; }

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
  const Call call_;
  const int16_t room_;
};

namespace entries {
#define CUPOOL_ROW(symbol, like)                            \
  struct symbol {                                           \
    static constexpr std::string_view kPlain = #like;       \
    static constexpr bool kIsPerThread = kPlain != #symbol; \
    static constexpr Call kCall = Call::symbol;             \
    static constexpr int kRoom = room_of(#symbol);          \
    static const Entry<decltype(&::like)>& entry();         \
  };
#include "cuda/api.def"
}  // namespace entries

struct Real {
#define CUPOOL_ROW(symbol, like)                                                             \
  Entry<decltype(&::like)> symbol{Entry<decltype(&::like)>::template first<entries::symbol>, \
                                  entries::symbol::kCall, entries::symbol::kRoom};
#include "cuda/api.def"
};

[[gnu::visibility("hidden")]] extern constinit Real real;

#define CUPOOL_ROW(symbol, like) \
  inline const Entry<decltype(&::like)>& entries::symbol::entry() { return real.symbol; }
#include "cuda/api.def"

}  // namespace cupool::cuda
