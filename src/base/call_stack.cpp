// See call_stack.hpp.
#include "base/call_stack.hpp"

#include <dlfcn.h>
#include <execinfo.h>

#include <atomic>
#include <cstdint>

#include "base/log.hpp"

namespace cupool {
namespace {

using Backtrace = int (*)(void**, int);

Backtrace find_backtrace() {
  void* const library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
  void* const found = library == nullptr ? nullptr : dlsym(library, "unw_backtrace");
  return found == nullptr ? backtrace : reinterpret_cast<Backtrace>(found);
}

const void* own_library() {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(&own_library), &info) != 0 ? info.dli_fbase : nullptr;
}

}  // namespace

size_t call_stack(void** frames, size_t most) {
  static constinit std::atomic<Backtrace> chosen{nullptr};
  Backtrace walk = chosen.load(std::memory_order_acquire);
  if (walk == nullptr) {
    walk = find_backtrace();
    chosen.store(walk, std::memory_order_release);
  }
  const int count = walk(frames, static_cast<int>(most));
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
