// Which frees count as having avoided a wait: never one in which the driver's would have found nothing to
// wait for.
#include "order_world.hpp"
#include "other_thread.hpp"

using namespace cupool;
using namespace cupool::test;
using order::Lane;

namespace {

struct CountsWorld : OrderWorld {
  stats::Device device;

  void free() {
    app.free_and_seal();
    time.note_unwaited_free(device);
  }
  void small_free() { time.note_unwaited_free(device); }
  uint64_t counted() { return device.read().waits_avoided; }
};

// So many frees ask the driver themselves.
constexpr int kAsked = 256;

}  // namespace

TEST_CASE_METHOD(CountsWorld,
                 "work that is pending at a free makes one wait avoided, not one for every free after it") {
  app.work(kS);
  free();
  CHECK(counted() == 1);
  free();
  small_free();
  free();
  CHECK(counted() == 1);
  app.work(kS);
  small_free();
  free();
  CHECK(counted() == 2);
}

TEST_CASE_METHOD(CountsWorld, "work that has ended unseen before the free makes none") {
  driver.done_at_once = true;
  for (int i = 0; i < 2 * kAsked; ++i) {
    app.work(kS);
    free();
  }
  CHECK(counted() == 0);
}

TEST_CASE_METHOD(CountsWorld, "work that the program has waited for makes none, also beside other work") {
  app.work(kT);
  free();
  for (int i = 0; i < 5; ++i) {
    app.work(kS);
    app.wait(kS, true);
    free();
    small_free();
  }
  CHECK(counted() == 1);
}

TEST_CASE_METHOD(CountsWorld, "a wait for an idle stream, or a query, ends no work that is new") {
  app.work(kS);
  app.wait(kT, true);
  free();
  CHECK(counted() == 1);
  app.work(kS);
  time.end_wait(time.begin_wait(kS, trace::Ordering::kWaitBegins, order::Timeline::Asks::kQuery), false);
  free();
  CHECK(counted() == 2);
  app.wait(kT, true);
  free();
  CHECK(counted() == 2);
}

TEST_CASE_METHOD(CountsWorld, "frees that do not ask count when a later look finds their work pending") {
  for (int i = 0; i < kAsked; ++i) {
    app.work(kS);
    free();
  }
  REQUIRE(counted() == kAsked);
  time.advance();
  const uint64_t asked = driver.queries;
  // Sealed, no look since.
  app.work(kS);
  time.note_unwaited_free(device);
  CHECK(driver.queries == asked);
  CHECK(counted() == kAsked);
  time.advance();
  CHECK(counted() == kAsked + 1);
  time.advance();
  CHECK(counted() == kAsked + 1);
  app.work(kS);
  small_free();
  app.finish();
  CHECK(counted() == kAsked + 1);
}

TEST_CASE_METHOD(CountsWorld, "the work of two threads before the free of one makes one wait avoided") {
  app.work(kS);
  OtherThread([&] { app.work(kT); }).join();
  free();
  CHECK(counted() == 1);
  OtherThread([&] { free(); }).join();
  free();
  small_free();
  CHECK(counted() == 1);
  OtherThread([&] { app.work(kT); }).join();
  app.work(kS);
  OtherThread([&] { free(); }).join();
  free();
  CHECK(counted() == 2);
}

TEST_CASE_METHOD(CountsWorld, "a thread that submits nothing has no new work of its own") {
  app.work(kS);
  app.work(kS);
  OtherThread([&] { small_free(); }).join();
  CHECK(counted() == 0);
}

TEST_CASE_METHOD(CountsWorld, "no question is asked while a stream captures") {
  app.work(kS);
  app.free_and_seal();
  gate.begin_capture();
  const uint64_t asked = driver.queries;
  time.note_unwaited_free(device);
  CHECK(driver.queries == asked);
  CHECK(counted() == 0);
}
