// See call_stack.hpp.
#include "base/call_stack.hpp"

#include <dlfcn.h>
#include <unwind.h>

#include <atomic>
#include <cstdint>

#include "base/log.hpp"

namespace cupool {
namespace {

using Backtrace = int (*)(void**, int);

struct Frames {
  void** frames;
  size_t most;
  size_t count;
};

_Unwind_Reason_Code take_frame(_Unwind_Context* context, void* argument) {
  auto& all = *static_cast<Frames*>(argument);
  if (all.count == all.most) return _URC_END_OF_STACK;
  all.frames[all.count++] = reinterpret_cast<void*>(_Unwind_GetIP(context));
  return _URC_NO_REASON;
}

int by_compiler(void** frames, int most) {
  Frames all{frames, static_cast<size_t>(most), 0};
  _Unwind_Backtrace(take_frame, &all);
  return static_cast<int>(all.count);
}

// By their whole path: a search path may name the current directory, and anybody may have put a library
// there.
#if defined(__x86_64__)
#define CUPOOL_TRIPLET "x86_64-linux-gnu"
#else
#define CUPOOL_TRIPLET "aarch64-linux-gnu"
#endif
constexpr const char* kUnwinders[] = {"/usr/lib/" CUPOOL_TRIPLET "/libunwind.so.8",
                                      "/usr/lib64/libunwind.so.8", "/lib/" CUPOOL_TRIPLET "/libunwind.so.8",
                                      "/usr/lib/libunwind.so.8"};

Backtrace find_backtrace() {
  for (const char* const path : kUnwinders) {
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void* const found = library == nullptr ? nullptr : dlsym(library, "unw_backtrace");
    if (found != nullptr) return reinterpret_cast<Backtrace>(found);
  }
  return by_compiler;
}

const void* own_library() {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(&own_library), &info) != 0 ? info.dli_fbase : nullptr;
}

}  // namespace

size_t call_stack(void** frames, size_t most) {
  static constinit std::atomic<Backtrace> chosen{nullptr};
  Backtrace backtrace = chosen.load(std::memory_order_acquire);
  if (backtrace == nullptr) {
    backtrace = find_backtrace();
    chosen.store(backtrace, std::memory_order_release);
  }
  const int count = backtrace(frames, static_cast<int>(most));
  return count > 0 ? static_cast<size_t>(count) : 0;
}

void print_call_stack(void* const* frames, size_t count) {
  const void* const own = own_library();
  unsigned number = 0;
  for (size_t i = 0; i < count; ++i) {
    Dl_info info{};
    // The address before the return belongs to the call, even if that was the last instruction of its
    // function.
    void* const at = static_cast<char*>(frames[i]) - 1;
    const bool known = dladdr(at, &info) != 0;
    if (known && info.dli_fbase == own) continue;
    const char* const object = known && info.dli_fname != nullptr ? info.dli_fname : "?";
    if (known && info.dli_sname != nullptr) {
      const auto offset = static_cast<char*>(frames[i]) - static_cast<char*>(info.dli_saddr);
      log::line("  #%u %p %s+%#tx in %s", number++, frames[i], info.dli_sname, offset, object);
    } else {
      const auto offset = static_cast<char*>(frames[i]) - static_cast<char*>(info.dli_fbase);
      log::line("  #%u %p in %s+%#tx", number++, frames[i], object, known ? offset : 0);
    }
  }
}

}  // namespace cupool
