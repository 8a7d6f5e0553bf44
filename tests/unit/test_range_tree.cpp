// The index of free ranges, against a list that is searched from end to end: what it finds, and in how many
// steps.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <vector>

#include "pool/bins.hpp"
#include "pool/pending_ranges.hpp"

using namespace cupool;
using namespace cupool::pool;

namespace {

constexpr uint64_t kAny = ~uint64_t{0};

struct Made {
  std::vector<std::unique_ptr<Range>> all;
  std::mt19937_64 random{1};

  uint64_t upto(uint64_t most) { return random() % most; }
  Range* make(uint64_t granules, Epoch stamp, uint16_t lane = 0) {
    all.push_back(std::make_unique<Range>());
    Range& range = *all.back();
    range.start = 0x7f0000000000 + all.size() * (uint64_t{1} << 30);
    range.bytes = granules * kGranule;
    range.stamp = stamp;
    range.sole = order::LaneName{lane};
    return &range;
  }
};

bool is_lower(const Range* a, const Range* b) { return BySize::less(*a, *b); }

// How the list would answer.
Range* best_of(const std::vector<Range*>& listed, uint64_t bytes, uint64_t most, Epoch limit) {
  Range* best = nullptr;
  for (Range* range : listed) {
    if (range->bytes < bytes || range->bytes > most || range->stamp > limit) continue;
    if (best == nullptr || is_lower(range, best)) best = range;
  }
  return best;
}

// Counts how often two ranges are compared.
uint64_t compared = 0;
struct Counted {
  static TimedNode& node(Range& range) { return range.by_size; }
  static bool less(const Range& a, const Range& b) {
    ++compared;
    return BySize::less(a, b);
  }
};

}  // namespace

TEST_CASE("the best fit among free ranges is what a search of all of them would find") {
  Made made;
  Bins bins;
  std::vector<Range*> listed;
  for (int step = 0; step < 20000; ++step) {
    if (listed.size() < 10 || made.upto(2) == 0) {
      // Narrow bands of sizes, so that bins are full, and wide ones.
      const uint64_t granules = 1 + (made.upto(2) == 0 ? 64 + made.upto(8) : made.upto(5000));
      listed.push_back(made.make(granules, made.upto(50)));
      bins.insert(listed.back());
    } else {
      const size_t at = made.upto(listed.size());
      bins.remove(listed[at]);
      listed[at] = listed.back();
      listed.pop_back();
    }
    const uint64_t bytes = (1 + made.upto(made.upto(2) == 0 ? 80 : 6000)) * kGranule;
    const uint64_t most = made.upto(4) == 0 ? bytes + bytes / 4 : kAny;
    const Epoch limit = made.upto(4) == 0 ? kAny : made.upto(50);
    if (bins.best_fit(bytes, most, limit) != best_of(listed, bytes, most, limit)) FAIL("another range fits");
  }
  uint64_t largest = 0;
  Epoch latest = 0;
  for (const Range* range : listed) {
    largest = std::max(largest, range->bytes);
    latest = std::max(latest, range->stamp);
  }
  CHECK(bins.largest() == largest);
  CHECK(bins.latest() == latest);
  std::vector<Range*> visited;
  bins.visit(100 * kGranule, [&](Range* range) {
    visited.push_back(range);
    return false;
  });
  CHECK(std::is_sorted(visited.begin(), visited.end(), is_lower));
  CHECK(visited.size() ==
        static_cast<size_t>(std::count_if(listed.begin(), listed.end(), [](const Range* range) {
          return range->bytes >= 100 * kGranule;
        })));
}

TEST_CASE(
    "of pending ranges that fit as well, the one freed first is found, in its own lane if one is asked") {
  Made made;
  PendingRanges pending;
  std::vector<Range*> listed;
  for (int step = 0; step < 20000; ++step) {
    if (listed.size() < 10 || made.upto(2) == 0) {
      listed.push_back(made.make(4000 + made.upto(20), made.upto(100), static_cast<uint16_t>(made.upto(4))));
      pending.insert(listed.back());
    } else {
      const size_t at = made.upto(listed.size());
      pending.remove(listed[at]);
      listed[at] = listed.back();
      listed.pop_back();
    }
    const uint64_t bytes = (3990 + made.upto(30)) * kGranule;
    const Epoch limit = made.upto(100);
    const auto lane = static_cast<uint16_t>(made.upto(5));
    std::vector<Range*> wanted = listed;
    if (lane != 0) std::erase_if(wanted, [&](Range* range) { return range->sole != order::LaneName{lane}; });
    const Range* const best = best_of(wanted, bytes, kAny, limit);
    const Range* first = nullptr;
    for (const Range* range : wanted) {
      const bool fits = best != nullptr && range->bytes >= bytes && range->stamp <= limit &&
                        range->bytes <= best->bytes + bytes / 1024;
      if (fits && (first == nullptr || range->stamp < first->stamp)) first = range;
    }
    const Range* const found = pending.best_fit(bytes, kAny, limit, order::LaneName{lane});
    if ((found == nullptr) != (first == nullptr)) FAIL("a range was missed, or does not fit");
    if (found == nullptr) continue;
    if (found->stamp != first->stamp || found->bytes < bytes || found->bytes > best->bytes + bytes / 1024)
      FAIL("another range is better");
    if (lane != 0 && found->sole != order::LaneName{lane}) FAIL("it is another lane's");
  }
  const auto is_older = [](const Range* a, const Range* b) { return a->stamp < b->stamp; };
  CHECK(pending.oldest()->stamp == (*std::min_element(listed.begin(), listed.end(), is_older))->stamp);
  CHECK(pending.newest()->stamp == (*std::max_element(listed.begin(), listed.end(), is_older))->stamp);
}

TEST_CASE("a search among a hundred thousand ranges looks at a few dozen") {
  constexpr size_t kMany = 100'000;
  // So many steps at most, of a tree that need not be quite even.
  constexpr uint64_t kFew = 150;
  Made made;
  RangeTree<Counted> tree;
  uint64_t most_compared = 0;
  const auto note = [&] { most_compared = std::max(most_compared, std::exchange(compared, 0)); };
  for (size_t i = 0; i < kMany; ++i) {
    // Nearly all have work that is not done.
    tree.insert(made.make(1 + made.upto(50), i % 1000 == 0 ? 1 : 2 + made.upto(100)));
    note();
  }
  for (int i = 0; i < 1000; ++i) {
    const uint64_t bytes = made.upto(50) * kGranule;
    const auto is_below = [&](const Range& range) {
      ++compared;
      return range.bytes < bytes;
    };
    const auto is_above = [&](const Range& range) {
      ++compared;
      return range.bytes > bytes + 2 * kGranule;
    };
    CHECK(tree.first(is_below, 1) != nullptr);
    note();
    CHECK(tree.first(is_below, 0) == nullptr);
    note();
    tree.oldest(is_below, is_above, kAny);
    note();
  }
  for (size_t i = 0; i < kMany; i += 7) {
    tree.remove(made.all[i].get());
    note();
  }
  CHECK(most_compared <= kFew);
}
