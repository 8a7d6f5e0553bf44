// Nothing in libcupool.so throws or catches: an exception must not cross a C entry point. What the C++
// library itself would throw (no host memory, a container at its limit) ends the process with a sentence.
// Being here, these functions also keep the C++ library's own out, which set aside memory for exceptions when
// the library is loaded.
#include <cstddef>
#include <cstdlib>

#include "base/log.hpp"

namespace {

[[noreturn]] void no_exceptions() {
  cupool::log::line("out of host memory");
  abort();
}

}  // namespace

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
