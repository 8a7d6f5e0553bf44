// A program of the CUDA runtime and Thrust: copies, sorts, scans and reduces 1 Mi integers in a loop, all
// temporaries from cudaMalloc. Checks every result against the host's and prints microseconds an iteration.
// Built by nvcc where it runs (scripts/gpu does it), since only a real driver serves the runtime.
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

namespace {

struct Sums {
  unsigned sorted_middle, scanned_end, total;
  bool operator==(const Sums& other) const {
    return sorted_middle == other.sorted_middle && scanned_end == other.scanned_end && total == other.total;
  }
};

Sums on_device(const thrust::device_vector<unsigned>& source) {
  thrust::device_vector<unsigned> values = source;
  thrust::sort(values.begin(), values.end());
  thrust::device_vector<unsigned> scanned(values.size());
  thrust::inclusive_scan(values.begin(), values.end(), scanned.begin());
  const unsigned total = thrust::reduce(scanned.begin(), scanned.end(), 0u);
  return {values[values.size() / 2], scanned.back(), total};
}

Sums on_host(std::vector<unsigned> values) {
  std::sort(values.begin(), values.end());
  std::vector<unsigned> scanned(values.size());
  std::partial_sum(values.begin(), values.end(), scanned.begin());
  return {values[values.size() / 2], scanned.back(), std::accumulate(scanned.begin(), scanned.end(), 0u)};
}

}  // namespace

int main() {
  constexpr int kIterations = 100, kRounds = 9;
  std::mt19937 random(3);
  std::vector<unsigned> host(1u << 20);
  for (unsigned& value : host) value = static_cast<unsigned>(random());
  const Sums expected = on_host(host);
  const thrust::device_vector<unsigned> source = host;
  std::vector<double> times;
  int wrong = 0;
  for (int round = 0; round < kRounds + 1; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kIterations; ++i) wrong += !(on_device(source) == expected);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (round > 0) times.push_back(took.count() / kIterations);
  }
  std::sort(times.begin(), times.end());
  std::printf("thrust: us=%.1f low=%.1f high=%.1f wrong=%d sum=%u\n", times[times.size() / 2], times.front(),
              times.back(), wrong, expected.total);
  return wrong == 0 ? 0 : 1;
}
