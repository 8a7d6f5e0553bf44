// A global that is constructed at compile time and never destroyed: other libraries may call us after our
// destructors would have run, and threads may still be at work. The compiler registers nothing to run at exit
// for it.
#pragma once

#include <utility>

namespace cupool {

template <typename T>
union NoDestroy {
  T value;

  template <typename... Args>
  constexpr explicit NoDestroy(Args&&... args) : value(std::forward<Args>(args)...) {}
  constexpr ~NoDestroy() {}
};

}  // namespace cupool
