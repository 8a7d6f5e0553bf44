// The rules of order/ as variables, in a build of libcupool.so that only tests load: WITHOUT_RULE names the
// one that is left out. Set before main() and never changed.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "order/rules.hpp"

namespace cupool::order {

bool kFence = true;
bool kGuard = true;
bool kNote = true;
bool kGuardEpoch = true;
bool kNumberFirst = true;
bool kDestroyBarrier = true;
bool kThreadLanes = true;

namespace {

struct Rule {
  const char* name;
  bool* kept;
};
constexpr Rule kRules[] = {{"fence", &kFence},
                           {"guard", &kGuard},
                           {"note", &kNote},
                           {"guard_epoch", &kGuardEpoch},
                           {"number_first", &kNumberFirst},
                           {"destroy_barrier", &kDestroyBarrier},
                           {"thread_lanes", &kThreadLanes}};

[[gnu::constructor]] void take_one_out() {
  const char* const wanted = std::getenv("WITHOUT_RULE");
  if (wanted == nullptr || *wanted == '\0') return;
  for (const Rule& rule : kRules) {
    if (std::strcmp(rule.name, wanted) != 0) continue;
    *rule.kept = false;
    return;
  }
  std::fprintf(stderr, "WITHOUT_RULE=%s is no rule\n", wanted);
  std::abort();
}

}  // namespace

}  // namespace cupool::order
