// Victim: a program linked to an override library in front of libcuda (link order: override, base, libcuda).
// An override in front of it, behind it, or none: no call may be lost, doubled in a loop, or sent to itself.
#include "linked_api.hpp"
#include "victim.hpp"

extern "C" {
int victim_tag();
int victim_next_agrees();
unsigned long victim_override_allocs();
unsigned long victim_override_frees();
}

int main() {
  victim::Device device(victim::linked_api());
  victim::exercise(device);
  const int tag = victim_tag();
  std::printf("tag=%d next_agrees=%d\n", tag, victim_next_agrees());
  const int code = device.finish("next");
  // On stderr: the override library is passed over when another override is preloaded in front of it.
  std::fprintf(stderr, "override: allocs=%lu frees=%lu\n", victim_override_allocs(), victim_override_frees());
  return tag == 71 ? code : 1;
}
