// The observer alone: listeners of the test's own, and the reasons for the slow path written down.
#include <catch2/catch.hpp>
#include <cerrno>
#include <string>
#include <vector>

#include "hooks/observe/observer.hpp"

namespace {

using cupool::Reentry;
using cupool::cuda::Call;
using cupool::hooks::SlowReason;
using cupool::hooks::observe::Allocated;
using cupool::hooks::observe::Freed;
using cupool::hooks::observe::Listener;
using cupool::hooks::observe::Observer;
using cupool::hooks::observe::Server;
using cupool::hooks::observe::Submitted;

std::vector<std::string> told;
uint32_t reasons = 0;

void set_slow(SlowReason reason, bool holds) {
  const auto bit = static_cast<uint32_t>(reason);
  reasons = holds ? reasons | bit : reasons & ~bit;
}
bool is_slow(SlowReason reason) { return (reasons & static_cast<uint32_t>(reason)) != 0; }

std::string text(const char* who, Call call) { return who + std::string(" ") + cupool::cuda::name_of(call); }

constexpr Allocated kAllocated{Call::cuMemAlloc_v2, Server::kPool, 512, 100, 0, nullptr};
constexpr Freed kFreed{Call::cuMemFree_v2, Server::kPool, 512, 100, 0, nullptr};
constexpr Submitted kSubmitted{Call::cuLaunchKernel, 1, 0, 0};

const Listener memory_listener{.is_wanted = [] { return true; },
                               .allocated =
                                   [](const Allocated& what) {
                                     told.push_back(text("memory", what.call));
                                     errno = ENOENT;
                                   },
                               .freed = [](const Freed& what) { told.push_back(text("memory", what.call)); }};
const Listener work_listener{
    .is_wanted = [] { return false; },
    .allocated = [](const Allocated& what) { told.push_back(text("work", what.call)); },
    .submitted = [](const Submitted& what) { told.push_back(text("work", what.call)); }};
constexpr const Listener* kListeners[] = {&memory_listener, &work_listener};

struct World {
  World() {
    told.clear();
    reasons = 0;
  }
  Observer observer{kListeners, &set_slow};
};

}  // namespace

TEST_CASE("with no listener on nobody is told and no call leaves the fast path") {
  const World world;
  world.observer.allocated(kAllocated);
  world.observer.submitted(kSubmitted);
  CHECK(told.empty());
  CHECK(reasons == 0);
}

TEST_CASE("an event is told once to each listener that wants it, in the order of the table") {
  World world;
  world.observer.listen(work_listener, true);
  world.observer.listen(memory_listener, true);
  world.observer.allocated(kAllocated);
  world.observer.submitted(kSubmitted);
  world.observer.freed(kFreed);
  CHECK(told == std::vector<std::string>{"memory cuMemAlloc_v2", "work cuMemAlloc_v2", "work cuLaunchKernel",
                                         "memory cuMemFree_v2"});
}

TEST_CASE("only calls that a listener wants leave the fast path") {
  World world;
  world.observer.listen(memory_listener, true);
  CHECK(is_slow(SlowReason::kMemoryObserved));
  CHECK_FALSE(is_slow(SlowReason::kWorkObserved));
  CHECK_FALSE(is_slow(SlowReason::kCallsObserved));
  world.observer.listen(work_listener, true);
  CHECK(is_slow(SlowReason::kWorkObserved));
  world.observer.listen(memory_listener, false);
  CHECK(is_slow(SlowReason::kMemoryObserved));
  world.observer.listen(work_listener, false);
  CHECK(reasons == 0);
}

TEST_CASE("a listener that was switched off is not told") {
  World world;
  world.observer.listen(memory_listener, true);
  world.observer.listen(work_listener, true);
  world.observer.listen(memory_listener, false);
  world.observer.allocated(kAllocated);
  CHECK(told == std::vector<std::string>{"work cuMemAlloc_v2"});
}

TEST_CASE("the options say which listeners are on at the start") {
  World world;
  world.observer.start();
  world.observer.allocated(kAllocated);
  CHECK(told == std::vector<std::string>{"memory cuMemAlloc_v2"});
}

TEST_CASE("calls from inside the driver are not told") {
  World world;
  world.observer.listen(memory_listener, true);
  const Reentry guard;
  world.observer.allocated(kAllocated);
  CHECK(told.empty());
}

TEST_CASE("a listener leaves the program's errno alone") {
  World world;
  world.observer.listen(memory_listener, true);
  errno = EINTR;
  world.observer.allocated(kAllocated);
  CHECK(errno == EINTR);
}

namespace {
Observer* under_test = nullptr;
const Listener curious_listener{.is_wanted = [] { return true; },
                                .allocated =
                                    [](const Allocated& what) {
                                      told.push_back(text("curious", what.call));
                                      CHECK(Reentry::inside());
                                      under_test->allocated(what);
                                    }};
constexpr const Listener* kCurious[] = {&curious_listener};
}  // namespace

TEST_CASE("what a listener does is not told") {
  told.clear();
  Observer observer{kCurious, &set_slow};
  under_test = &observer;
  observer.start();
  observer.allocated(kAllocated);
  CHECK(told.size() == 1);
  observer.listen(curious_listener, false);
}
