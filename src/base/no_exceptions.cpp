// Nothing in libcupool.so throws or catches: an exception must not cross a C entry point. What the C++
// library itself would throw (no host memory, a container at its limit) ends the process with a sentence.
// Being here, these functions also keep the C++ library's own out, which bring the unwinder with them (and
// through it functions of a new glibc) and set aside memory for exceptions when the library is loaded.
#include <cstddef>
#include <cstdlib>
#include <new>

#include "base/log.hpp"

namespace {

[[noreturn]] void no_exceptions() {
  cupool::log::line("the host has no memory left for cupool's own records; the process ends here");
  abort();
}

void* allocate(size_t bytes, size_t alignment) {
  // malloc(0) may be null, which is no failure here.
  if (bytes == 0) bytes = 1;
  if (alignment <= alignof(max_align_t)) return malloc(bytes);
  void* out = nullptr;
  return posix_memalign(&out, alignment, bytes) == 0 ? out : nullptr;
}

void* allocate_or_end(size_t bytes, size_t alignment) {
  void* const out = allocate(bytes, alignment);
  if (out == nullptr) no_exceptions();
  return out;
}

}  // namespace

void* operator new(size_t bytes) { return allocate_or_end(bytes, 1); }
void* operator new[](size_t bytes) { return allocate_or_end(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate_or_end(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* block) noexcept { free(block); }
void operator delete[](void* block) noexcept { free(block); }
void operator delete(void* block, size_t) noexcept { free(block); }
void operator delete[](void* block, size_t) noexcept { free(block); }
void operator delete(void* block, std::align_val_t) noexcept { free(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { free(block); }

namespace std {
void __throw_bad_alloc() { no_exceptions(); }
void __throw_bad_array_new_length() { no_exceptions(); }
void __throw_length_error(const char*) { no_exceptions(); }
void __throw_logic_error(const char*) { no_exceptions(); }
void __throw_out_of_range(const char*) { no_exceptions(); }
void __throw_out_of_range_fmt(const char*, ...) { no_exceptions(); }
void __throw_bad_function_call() { no_exceptions(); }
void __throw_system_error(int) { no_exceptions(); }
void terminate() noexcept { no_exceptions(); }
}  // namespace std

extern "C" {
void* __cxa_allocate_exception(size_t) noexcept;
void __cxa_free_exception(void*) noexcept;
void __cxa_throw(void*, void*, void (*)(void*));
void* __cxa_begin_catch(void*) noexcept;
void __cxa_end_catch();
void __cxa_call_unexpected(void*);
int __gxx_personality_v0(...);
void _Unwind_Resume(void*);

void* __cxa_allocate_exception(size_t) noexcept { no_exceptions(); }
void __cxa_free_exception(void*) noexcept {}
void __cxa_throw(void*, void*, void (*)(void*)) { no_exceptions(); }
void* __cxa_begin_catch(void*) noexcept { no_exceptions(); }
void __cxa_end_catch() {}
void __cxa_call_unexpected(void*) { no_exceptions(); }
// An exception of the program's that passes through here goes on: _URC_CONTINUE_UNWIND.
int __gxx_personality_v0(...) { return 8; }
void _Unwind_Resume(void*) { no_exceptions(); }
}
