// Measurements of one quantity in several runs, with and without the pool, and what can be told from them:
// whether one of the two needs less, or whether that lies within the noise. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

namespace cupool::tools {

struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
};
// pre: at least one.
Spread spread_of(std::vector<double> samples);

enum class Told {
  kNothing,  // too few runs, or none
  kNoise,    // the runs of one side differ as much as the two sides do
  kSame,     // the medians differ by less than a hundredth
  kLess,     // under the pool
  kMore,
};
// Two sides differ if in nearly all pairs, of one run each, the same side needs less: the medians of a few
// runs differ by chance, too.
inline constexpr size_t kFewestRuns = 3;
Told compare_samples(const std::vector<double>& bare, const std::vector<double>& pooled);

}  // namespace cupool::tools
