// The rules of order/ as variables, in a build of libcupool.so that only tests load: WITHOUT_RULE names the
// one that is left out. Set before main() and never changed.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "order/rules.hpp"

namespace cupool::order {

bool kFence = true;
bool kLean = true;
bool kAllLanes = true;
bool kNote = true;
bool kNumberFirst = true;
bool kRename = true;
bool kDropWaited = true;
bool kDropOverlap = true;
bool kThreadLanes = true;
bool kTurn = true;
bool kDropName = true;
bool kSealInFree = true;
bool kExports = true;
bool kMoves = true;
bool kVacated = true;
bool kDoneGoes = true;
bool kFormer = true;
bool kGraphsApart = true;
bool kPeersDone = true;

namespace {

struct Rule {
  const char* name;
  bool* kept;
};
constexpr Rule kRules[] = {{"fence", &kFence},
                           {"lean", &kLean},
                           {"all_lanes", &kAllLanes},
                           {"note", &kNote},
                           {"number_first", &kNumberFirst},
                           {"rename", &kRename},
                           {"drop_waited", &kDropWaited},
                           {"drop_overlap", &kDropOverlap},
                           {"thread_lanes", &kThreadLanes},
                           {"turn", &kTurn},
                           {"drop_name", &kDropName},
                           {"seal_in_free", &kSealInFree},
                           {"exports", &kExports},
                           {"moves", &kMoves},
                           {"vacated", &kVacated},
                           {"done_goes", &kDoneGoes},
                           {"former", &kFormer},
                           {"graphs_apart", &kGraphsApart},
                           {"peers_done", &kPeersDone}};

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
