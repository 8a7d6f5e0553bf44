// A listener that writes a line for every event: its name, the call and the result. Linked into a
// libcupool.so of its own, whose other objects are the product's.
#include <unistd.h>

#include <cstdio>

#include "hooks/observe/observer.hpp"

namespace cupool::hooks::observe {

extern const Listener told_to_test_listener;

namespace {

void say(const char* event, cuda::Call call, int result, uint64_t address = 0, uint64_t bytes = 0) {
  char line[160];
  const int length =
      std::snprintf(line, sizeof line, "%s %s %d %#llx %llu\n", event, cuda::name_of(call), result,
                    static_cast<unsigned long long>(address), static_cast<unsigned long long>(bytes));
  if (write(STDERR_FILENO, line, static_cast<size_t>(length)) < 0) _exit(9);
}

}  // namespace

constinit const Listener told_to_test_listener{
    .is_wanted = [] { return true; },
    .allocated = [](const Allocated& what) { say("allocated", what.call, 0, what.address, what.bytes); },
    .freed = [](const Freed& what) { say("freed", what.call, 0, what.address, what.bytes); },
    .failed = [](const Failed& what) { say("failed", what.call, what.result, what.address, what.bytes); },
    .submitted = [](const Submitted& what) { say("submitted", what.call, what.result); },
    .forwarded = [](const Forwarded& what) { say("forwarded", what.call, what.result); },
    .waited = [](const Waited& what) { say("waited", what.call, what.result); }};

}  // namespace cupool::hooks::observe
