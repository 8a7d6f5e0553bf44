// State that a fork child has to reset. A global that must not survive a fork registers a function where it
// is defined: the function's address goes into a section of the library, and the child calls all of them.
// Nothing runs at load time. The child has no other thread; locks may have been held at the fork.
#pragma once

namespace cupool {

using AfterFork = void (*)();

// Calls every registered function, in no particular order.
void forget_after_fork();

}  // namespace cupool

#define CUPOOL_AFTER_FORK(name, function) \
  [[gnu::used, gnu::section("cupool_after_fork")]] constinit const ::cupool::AfterFork name = function
