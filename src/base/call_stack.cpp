// See call_stack.hpp.
#include "base/call_stack.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#if __has_include(<libunwind.h>)
#include <libunwind.h>
#endif

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/log.hpp"
#include "base/symbols.hpp"
#include "base/system_library.hpp"

namespace cupool {
namespace {

// The type of both functions that walk a stack. Checked against libunwind's header where the compiler has
// one; a cross compiler may not.
using Backtrace = int (*)(void**, int);
#if __has_include(<libunwind.h>)
static_assert(std::is_convertible_v<decltype(&unw_backtrace), Backtrace>);
#endif

Backtrace find_backtrace() {
  void* const library = open_system_library("libunwind.so.8");
  void* const found = library == nullptr ? nullptr : dlsym(library, "unw_backtrace");
  return found == nullptr ? backtrace : reinterpret_cast<Backtrace>(found);
}

// The byte before the return address belongs to the call, even if the call was its function's last
// instruction.
void* call_of(void* return_address) { return static_cast<char*>(return_address) - 1; }

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

size_t without_own_frames(void* const* frames, size_t count, void** out, size_t room) {
  const void* const own = own_library();
  size_t kept = 0;
  for (size_t i = 0; i < count && kept < room; ++i) {
    Dl_info info{};
    const bool known = dladdr(call_of(frames[i]), &info) != 0;
    if (!known || info.dli_fbase != own) out[kept++] = frames[i];
  }
  return kept;
}

void print_call_stack(std::string_view who, void* const* frames, size_t count) {
  void* others[kDeepestStack];
  const size_t kept = without_own_frames(frames, count, others, kDeepestStack);
  for (unsigned i = 0; i < kept; ++i) {
    const Symbol at = symbol_at(call_of(others[i]));
    if (at.line != 0) {
      log::line("{}:     #{} {} at {}:{}", who, i, *at.function != '\0' ? at.function : "?", at.file,
                at.line);
    } else if (*at.object == '\0') {
      log::line("{}:     #{} {}", who, i, others[i]);
    } else {
      log::line("{}:     #{} {} in {}; for the line: addr2line -Cfe {} {:#x}", who, i,
                *at.function != '\0' ? at.function : "?", at.object, at.object, at.in_object);
    }
    // The frames above main are the same in every program.
    if (strcmp(at.function, "main") == 0) return;
  }
}

}  // namespace cupool
