// What a forked child has to forget. A global that must not survive a fork joins here, where it is defined:
// its function's address goes into a section of the library, and the child runs all of them. Nothing runs at
// load time for it. In the child there is no other thread; locks may have been held when it was made.
#pragma once

namespace cupool {

using AfterFork = void (*)();

// Runs everything that has joined, in no particular order.
void forget_after_fork();

}  // namespace cupool

#define CUPOOL_AFTER_FORK(name, function) \
  [[gnu::used, gnu::section("cupool_after_fork")]] constinit const ::cupool::AfterFork name = function
