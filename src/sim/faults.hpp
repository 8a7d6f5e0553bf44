// Injected faults: named calls fail at named counts.
//   CUPOOL_SIM_FAULTS = rule[,rule…]        rule = NAME@WHEN=CODE
//   NAME  an ABI name, e.g. cuMemAlloc_v2 (the _ptsz/_ptds form of a call counts under its plain name)
//   WHEN  3 (the third call alone), 5+ (from the fifth on), * (always); counts begin at 1
//   CODE  the CUresult to return, in decimal, e.g. 2 for CUDA_ERROR_OUT_OF_MEMORY; +2: the call takes effect,
//         and then returns it, as a call does that tells of an earlier error
// Example: cuMemAlloc_v2@3=2,cuCtxRecordEvent@*=999,cuEventQuery@5+=719
// A faulted call without + has no effect at all. Counts are atomic, no lock is taken.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

// The site of an entry point: SIM_SITE(cuMemAlloc_v2).
#define SIM_SITE(name)                                \
  ([]() -> ::cupool::sim::Site& {                     \
    static constinit ::cupool::sim::Site site(#name); \
    return site;                                      \
  }())

namespace cupool::sim {

struct FaultRule {
  std::uint64_t from = 1;
  std::uint64_t to = UINT64_MAX;
  CUresult code = CUDA_SUCCESS;
  bool takes_effect = false;
  const FaultRule* next = nullptr;
};

// One per entry point, a function-local static: knows its name and counts its calls. Made by the compiler,
// and its rules looked up at the first call: a child forked while another thread makes one would wait for
// ever.
class Site {
 public:
  explicit constexpr Site(const char* name) : name_(name) {}
  const char* name() const { return name_; }
  // Counts this call; CUDA_SUCCESS when it may go on, and `after`, if asked for, is what it answers then.
  CUresult enter(CUresult* after = nullptr);

 private:
  static constexpr FaultRule kNotLookedUp{};
  const FaultRule* look_up();

  const char* name_;
  std::atomic<const FaultRule*> rules_{&kNotLookedUp};
  std::atomic<std::uint64_t> calls_{0};
};

inline CUresult Site::enter(CUresult* after) {
  const FaultRule* rules = rules_.load(std::memory_order_acquire);
  if (rules == &kNotLookedUp) rules = look_up();
  if (rules == nullptr) return CUDA_SUCCESS;
  const std::uint64_t n = calls_.fetch_add(1, std::memory_order_relaxed) + 1;
  for (const FaultRule* rule = rules; rule != nullptr; rule = rule->next) {
    if (n < rule->from || n > rule->to) continue;
    if (!rule->takes_effect) return rule->code;
    if (after != nullptr) *after = rule->code;
    return CUDA_SUCCESS;
  }
  return CUDA_SUCCESS;
}

}  // namespace cupool::sim
