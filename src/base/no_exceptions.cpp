// Nothing in libcupool.so throws or catches: an exception must not cross a C entry point. The C++ library's
// own operators would throw when the host has no memory; these take from the reserve (host_memory.hpp).
// Defining them and the last functions here also keeps the C++ library's versions out, which pull in the
// unwinder (and through it functions of a new glibc) and reserve memory for exceptions at load time.
#include <cstddef>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "base/host_memory.hpp"
#include "base/log.hpp"

namespace {

size_t number(std::align_val_t alignment) { return static_cast<size_t>(alignment); }

// A container exceeded its limit, or an empty std::function was called.
[[noreturn]] void no_exceptions() {
  cupool::log::line("an error inside cupool that it cannot go on from");
  abort();
}

}  // namespace

// ---- Never null.
void* operator new(size_t bytes) { return cupool::host::take(bytes); }
void* operator new[](size_t bytes) { return cupool::host::take(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return cupool::host::take(bytes, number(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return cupool::host::take(bytes, number(alignment));
}

// ---- Null where there is none.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return cupool::host::take_if_there(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return cupool::host::take_if_there(bytes);
}
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return cupool::host::take_if_there(bytes, number(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return cupool::host::take_if_there(bytes, number(alignment));
}

// ---- Back.
void operator delete(void* memory) noexcept { cupool::host::give(memory); }
void operator delete[](void* memory) noexcept { cupool::host::give(memory); }
void operator delete(void* memory, size_t) noexcept { cupool::host::give(memory); }
void operator delete[](void* memory, size_t) noexcept { cupool::host::give(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { cupool::host::give(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { cupool::host::give(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { cupool::host::give(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { cupool::host::give(memory); }

extern "C" {
void* __cxa_allocate_exception(size_t) noexcept;
void __cxa_free_exception(void*) noexcept;
void* __cxa_allocate_dependent_exception() noexcept;
void __cxa_free_dependent_exception(void*) noexcept;

void* __cxa_allocate_exception(size_t) noexcept { no_exceptions(); }
void __cxa_free_exception(void*) noexcept {}
void* __cxa_allocate_dependent_exception() noexcept { no_exceptions(); }
void __cxa_free_dependent_exception(void*) noexcept {}
}

// Called by containers on errors such as excessive sizes; they replace the C++ library's, which throw.
namespace std {
void __throw_length_error(const char*) { no_exceptions(); }
void __throw_bad_alloc() { no_exceptions(); }
void __throw_bad_array_new_length() { no_exceptions(); }
void __throw_out_of_range_fmt(const char*, ...) { no_exceptions(); }
void __throw_logic_error(const char*) { no_exceptions(); }
void __throw_bad_function_call() { no_exceptions(); }
}  // namespace std
