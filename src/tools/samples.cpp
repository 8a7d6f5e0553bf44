// See samples.hpp.
#include "tools/samples.hpp"

#include <algorithm>
#include <cmath>

namespace cupool::tools {

Spread spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t half = samples.size() / 2;
  const double median = samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
  return {median, samples.front(), samples.back()};
}

Told compare_samples(const std::vector<double>& bare, const std::vector<double>& pooled) {
  constexpr double kWorthNaming = 0.01;
  constexpr double kNearlyAll = 0.95;
  if (bare.size() < kFewestRuns || pooled.size() < kFewestRuns) return Told::kNothing;
  const double before = spread_of(bare).median;
  const double after = spread_of(pooled).median;
  // Of the Mann-Whitney test, which asks nothing about how the samples are distributed.
  double less = 0;
  for (const double one : bare) {
    for (const double other : pooled) less += other < one ? 1 : (other == one ? 0.5 : 0);
  }
  less /= static_cast<double>(bare.size() * pooled.size());
  if (std::abs(after - before) <= kWorthNaming * before) return Told::kSame;
  if (less >= kNearlyAll) return Told::kLess;
  return less <= 1 - kNearlyAll ? Told::kMore : Told::kNoise;
}

}  // namespace cupool::tools
