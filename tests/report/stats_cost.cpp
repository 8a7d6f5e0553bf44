// What counting costs an allocation and a free: pairs on a scripted driver, once as they are and once, in a
// second program made of the same sources, without counting. Prints nanoseconds a pair for each size.
// stats_cost [--smoke].
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "fake_driver.hpp"
#include "memory/hot_path.hpp"
#include "memory/memory.hpp"

using namespace cupool;

namespace {

double pair_ns(memory::Memory& memory, driver::Context context, uint64_t bytes, int pairs) {
  driver::Address address = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < pairs; ++i) {
    if (memory.allocate(context, bytes, &address) != driver::kSuccess) return -1;
    memory.free(address);
  }
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
  return spent.count() / pairs;
}

}  // namespace

int main(int count, char** arguments) {
  const bool smoke = count > 1 && std::strcmp(arguments[1], "--smoke") == 0;
  const int pairs = smoke ? 100 : 2000000;
  const int rounds = smoke ? 1 : 9;
  test::FakeDriver driver;
  memory::Memory memory{&driver, &driver};
  const auto context = reinterpret_cast<driver::Context>(0x10);
  for (const uint64_t bytes : {uint64_t{512}, uint64_t{20000}, uint64_t{500000}}) {
    double best = 1e9;
    for (int round = 0; round < rounds; ++round)
      best = std::min(best, pair_ns(memory, context, bytes, pairs));
    std::printf("%llu %.2f\n", static_cast<unsigned long long>(bytes), best);
  }
  return 0;
}
