// A million random operations against the plainest allocator there is and a GPU of clocks: nothing overlaps,
// everything is aligned and found where it is, no work reaches a block before its former owners' work, the
// records agree with each other throughout, and memory stays bounded.
#include <random>
#include <thread>

#include "pool_world.hpp"
#include "reference.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kOperations = 100'000;
#else
constexpr int kOperations = 1'000'000;
#endif

struct Walk : BasicPoolWorld<ClockedDriver> {
  std::mt19937_64 random;
  Reference reference;
  std::vector<Life> held;
  uint64_t most_held = 0;
  int capturing = 0;
  int lanes_wanted = 1;
  const bool hostile;  // captures, and calls that the driver refuses
  const order::Reuse reuse;

  Walk(uint64_t seed, bool with_hostility, order::Reuse mode = order::Reuse::kLean)
      : random(seed), hostile(with_hostility), reuse(mode) {
    driver.capacity = 2 * kGiB;
    if (reuse == order::Reuse::kOrder) memory.order().expect_untracked_work("a test");
    if (reuse == order::Reuse::kCompleted) memory.order().use_completed_only("a test");
    driver.ends_when_asked = reuse == order::Reuse::kCompleted;
  }

  uint64_t any(uint64_t below) { return random() % below; }

  void allocate_one() {
    if (held.size() >= 600 || reference.total() > 256 * kMiB) return;
    Life life;
    const uint64_t octave = uint64_t{1} << any(any(8) == 0 ? 24 : 17);
    life.bytes = octave + any(octave);
    if (any(4) == 0) life.bytes = octave;
    const uint64_t waits = driver.synchronisations;
    life.start = allocate(life.bytes);
    if (driver.synchronisations != waits) FAIL("an allocation waited for all work");
    if (life.start % 512 != 0) FAIL("a block is not aligned");
    if (!reference.add(life)) FAIL("a block overlaps another that is held");
    if (reuse == order::Reuse::kCompleted && !driver.is_over(life.follows))
      FAIL("a block was handed out before its old work was over");
    held.push_back(life);
    most_held = std::max(most_held, reference.total());
  }
  void free_one() {
    if (held.empty()) return;
    const size_t which = any(held.size());
    std::swap(held[which], held.back());
    const Life life = held.back();
    held.pop_back();
    reference.remove(life);
    ClockedDriver::is_in_free = true;
    free(life.start);
    ClockedDriver::is_in_free = false;
    if (any(16) == 0 && memory.free(life.start) == memory::Freed::kDone) FAIL("a block was freed twice");
  }
  void launch() {
    if (held.empty()) return;
    Life& life = held[any(held.size())];
    const size_t number = any(lanes_wanted);
    const order::Lane lane = lane_of_stream(number);
    // Where that is known, some of the work is not seen.
    const bool is_seen = reuse != order::Reuse::kOrder || any(4) != 0;
    if (is_seen && !time().before_submit(lane, stream(lane))) FAIL("a submission was forbidden");
    if (!driver.submit(number, life)) FAIL("work is not ordered after a former owner's");
    if (is_seen) time().after_submit(lane);
  }
  void export_one() {
    if (held.empty() || capturing != 0) return;
    const Life& life = held[any(held.size())];
    const bool before = driver.ends_when_asked;
    driver.ends_when_asked = true;
    memory.drain_before_export(life.start + any(life.bytes));
    driver.ends_when_asked = before;
    if (!driver.is_over(life.follows)) FAIL("memory left the process before its old work was over");
  }
  void replace_stream() {
    const size_t number = any(kStreams);
    time().destroy_stream(lane_of_stream(number));
    driver.replace(number);
  }
  void question() {
    if (held.empty()) return;
    const Life& life = held[any(held.size())];
    memory::BlockInfo answer;
    const driver::Address inside = life.start + any(life.bytes);
    if (!memory.find(inside, &answer) || answer.start != life.start || answer.bytes != life.bytes) {
      FAIL("a block is not found by an address inside it");
    }
    if (inside != life.start && memory.free(inside) != memory::Freed::kNotLive)
      FAIL("an interior address was freed");
    if (memory.find(life.start + life.bytes, &answer) && answer.start < life.start + life.bytes) {
      FAIL("the end of a block is taken for the block");
    }
  }
  void wait_as_the_program() {
    const size_t stream = any(kStreams);
    const bool whole = any(2) == 0;
    const order::Epoch epoch = time().begin_wait(whole ? order::Lane::kMany : lane_of_stream(stream));
    const bool succeeded = any(4) != 0 && capturing == 0;
    if (succeeded && whole) driver.synchronize(context);
    if (succeeded && !whole) driver.wait_for(stream);
    time().end_wait(epoch, succeeded);
  }
  void capture_or_end() {
    if (capturing > 0 && any(2) == 0) {
      memory.order().gate().end_capture();
      --capturing;
    } else if (capturing < 2 && any(8) == 0) {
      memory.order().gate().begin_capture();
      ++capturing;
    }
  }
  void rare() {
    switch (any(hostile ? 11 : 8)) {
      case 0:
        pool().caches().empty_all();
        break;
      case 1:
        pool().release_everything();
        break;
      case 2:
        lanes_wanted = 1 + static_cast<int>(any(any(3) == 0 ? kStreams : 1));
        break;
      case 3:
        export_one();
        break;
      case 4:
        time().wait_for_all();
        break;
      case 5:
        replace_stream();
        break;
      case 6:
        std::thread([this] { steps(20); }).join();
        break;
      case 8:
        driver.fail_record = any(4) == 0 ? driver::kNotSupported : driver::kSuccess;
        break;
      case 9:
        driver.fail_release = any(4) == 0 ? driver::kNotSupported : driver::kSuccess;
        break;
      case 10:
        capture_or_end();
        break;
      default:
        wait_as_the_program();
        break;
    }
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      const uint64_t dice = any(1000);
      if (dice < 400) {
        allocate_one();
      } else if (dice < 780) {
        free_one();
      } else if (dice < 930) {
        launch();
      } else if (dice < 960) {
        driver.progress(any(kStreams), any(20));
      } else if (dice < 980) {
        any(4) == 0 ? time().seal_for_completion() : time().advance();
      } else if (dice < 996) {
        question();
      } else {
        rare();
      }
    }
  }
};

}  // namespace

static void walk_and_empty(Walk& walk, int operations) {
  for (int i = 0; i < operations; i += 1000) {
    walk.steps(1000);
    walk.check_records();
    // Growing and shrinking both happen: now and then nearly all goes.
    if (walk.any(50) == 0) {
      while (walk.held.size() > 10) walk.free_one();
    }
  }
  while (walk.capturing-- > 0) walk.memory.order().gate().end_capture();
  walk.driver.fail_release = walk.driver.fail_record = driver::kSuccess;
  while (!walk.held.empty()) walk.free_one();
  CHECK(walk.driver.strays == 0);
  walk.pool().release_everything();
  CHECK(walk.reserved() == 0);
  CHECK(walk.driver.reserved == 0);
  CHECK(walk.pool().caches().live_bytes() == 0);
}

TEST_CASE("a million random operations agree with the plainest allocator, in bounded memory") {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    CAPTURE(seed);
    Walk walk(seed, false);
    walk_and_empty(walk, kOperations / 4);
    CHECK(walk.driver.peak <= 2 * walk.most_held + walk.pool().settings().many_budget + 64 * kMiB);
  }
}

TEST_CASE("random operations agree with it too while streams capture and the driver refuses") {
  for (const uint64_t seed : {11, 12, 13, 14}) {
    CAPTURE(seed);
    Walk walk(seed, true);
    walk_and_empty(walk, kOperations / 10);
  }
}

TEST_CASE("random operations agree with it where work is unseen, and the whole context waits instead") {
  for (const uint64_t seed : {21, 22, 23, 24}) {
    CAPTURE(seed);
    Walk walk(seed, seed % 2 == 0, order::Reuse::kOrder);
    walk_and_empty(walk, kOperations / 10);
    CHECK(walk.driver.orders > 0);
  }
}

TEST_CASE("random operations agree with it where reuse is exact, and no stream waits") {
  for (const uint64_t seed : {31, 32, 33, 34}) {
    CAPTURE(seed);
    Walk walk(seed, seed % 2 == 0, order::Reuse::kCompleted);
    walk_and_empty(walk, kOperations / 10);
    CHECK(walk.driver.waits == 0);
    CHECK(walk.driver.orders == 0);
    if (walk.hostile) continue;
    CHECK(walk.driver.peak <= 2 * walk.most_held + walk.pool().settings().many_budget + 64 * kMiB);
  }
}

TEST_CASE("random operations agree with it on a driver without context events, where only frees wait") {
  Walk walk(41, false);
  walk.driver.context_events = false;
  walk_and_empty(walk, kOperations / 10);
  CHECK(walk.driver.records == 0);
}

TEST_CASE("random operations on one lane never make the GPU wait") {
  Walk walk(7, false);
  for (int i = 0; i < kOperations / 10; ++i) {
    walk.any(2) == 0 ? walk.allocate_one() : walk.free_one();
    walk.launch();
  }
  CHECK(walk.driver.orders == 0);
  CHECK(walk.driver.waits == 0);
  CHECK(walk.driver.synchronisations == 0);
  CHECK(walk.driver.peak <= 2 * walk.most_held + 32 * kMiB);
}
