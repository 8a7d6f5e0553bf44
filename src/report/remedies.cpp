// See remedies.hpp.
#include "report/remedies.hpp"

#include <algorithm>

#include "base/bytes.hpp"

namespace cupool::report {
namespace {

constexpr uint64_t kStep = 2 << 20;

// What the pool could have of the device if it gave everything back first, within the user's limit. Other
// contexts of the program may need up to twice as much as now.
uint64_t available(const Shortage& s) {
  const uint64_t elsewhere = s.limited - std::min(s.limited, s.reserved);
  const uint64_t here = s.device_free + s.reserved;
  const uint64_t most = here - std::min(here, elsewhere);
  if (s.limit == kUnlimited) return most;
  return std::min(most, s.limit - std::min(s.limit, 2 * elsewhere));
}

// Whether it passes when the same live blocks need so much, and the program came here with what it needed
// before.
bool fits(const Shortage& s, uint64_t needed, uint64_t before) {
  return needed != 0 && std::max(needed, before) <= available(s);
}

}  // namespace

Remedies remedies(const Shortage& s, const Settings& now) {
  Remedies out;
  const Cause cause = cause_of(s);
  // With more room the pool may cut as much again that it cannot use.
  const uint64_t more = s.rounded + s.free_in_shared;
  if (cause == Cause::kLimit && s.device_free >= more) out.add(Setting::kLimit, s.limited + more);
  if (cause == Cause::kCapture) out.add(Setting::kUncached);
  // (What was shared with others stays where it is under every setting but one that cuts nothing.)
  if (s.source == Shortage::Source::kPool && cause != Cause::kCapture && cause != Cause::kUnclear) {
    if (now.is_mapped && now.chunk > kStep && fits(s, s.if_mapped, s.peak_if_apart))
      out.add(Setting::kChunk, kStep);
    if (!now.is_mapped && now.can_map && fits(s, s.if_mapped, s.peak_if_apart)) out.add(Setting::kMapped);
    if (!now.is_mapped && now.exact > kStep && fits(s, s.if_exact, s.peak_if_apart))
      out.add(Setting::kExact, kStep);
    if (fits(s, s.if_dedicated, s.peak_if_dedicated)) out.add(Setting::kDedicated);
  }
  // Twice as much beside it: the host may need memory for itself.
  const bool may_spill = s.source != Shortage::Source::kManaged && !s.capturing && now.can_map &&
                         now.spill != kUnlimited && now.host_free / 2 > s.rounded;
  if (may_spill) out.add(Setting::kSpill, now.spill + round_up(s.rounded, kStep));
  if (cause == Cause::kUnclear && !now.has_fallback && s.source == Shortage::Source::kPool)
    out.add(Setting::kFallback);
  return out;
}

}  // namespace cupool::report
