// One context's timeline on a scripted driver that knows which event was recorded when, and whether inside a
// free: no stream may ever be told to wait for one that was not.
#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "fake_driver.hpp"
#include "order/timelines.hpp"

namespace cupool::test {

inline constexpr order::Lane kS{0x1000}, kT{0x2000}, kU{0x3000};
inline const auto kFirst = reinterpret_cast<driver::Context>(0x10);
inline const auto kSecond = reinterpret_cast<driver::Context>(0x20);

// Blocks are only their stamps here; where it matters which block, a test says so.
inline constexpr driver::Address kSomeBlock = 0x100000;

inline driver::Stream stream_of(order::Lane lane) { return reinterpret_cast<driver::Stream>(lane); }

class OrderDriver final : public FakeDriver {
 public:
  struct Record {
    driver::Context context;
    driver::Event event;
    bool in_free;
  };
  struct StreamWait {
    driver::Stream stream;
    size_t record;  // which record of the event it waits for
  };
  struct ContextWait {
    driver::Context context;
    size_t record;
  };

  std::vector<Record> made;
  std::vector<StreamWait> stream_waits;
  std::vector<ContextWait> context_waits;
  std::vector<driver::Context> synchronised;
  bool in_free = false;
  driver::Status fail_query = driver::kSuccess;
  std::function<void()> on_record = [] {};
  std::function<void()> on_wait = [] {};
  std::function<void()> on_synchronize = [] {};

  driver::Status record(driver::Context context, driver::Event event) override {
    on_record();
    const driver::Status status = FakeDriver::record(context, event);
    if (status != driver::kSuccess) return status;
    last_[event] = made.size();
    made.push_back({context, event, in_free});
    return status;
  }
  driver::Status query(driver::Event event) override {
    const driver::Status status = FakeDriver::query(event);
    return fail_query != driver::kSuccess ? fail_query : status;
  }
  driver::Status order_after(driver::Context context, driver::Event event) override {
    on_wait();
    const driver::Status status = FakeDriver::order_after(context, event);
    if (status != driver::kSuccess) return status;
    context_waits.push_back({context, last_.at(event)});
    if (!made[last_.at(event)].in_free) FAIL("a context waits for an event that was recorded outside a free");
    return status;
  }
  driver::Status wait_on(driver::Stream stream, driver::Event event) override {
    on_wait();
    const driver::Status status = FakeDriver::wait_on(stream, event);
    if (status != driver::kSuccess) return status;
    stream_waits.push_back({stream, last_.at(event)});
    if (!made[last_.at(event)].in_free) FAIL("a stream waits for an event that was recorded outside a free");
    return status;
  }
  driver::Status synchronize(driver::Context context) override {
    on_synchronize();
    const driver::Status status = FakeDriver::synchronize(context);
    if (status == driver::kSuccess) synchronised.push_back(context);
    return status;
  }

 private:
  std::map<driver::Event, size_t> last_;
};

// What a program does to one timeline.
struct OrderSteps {
  OrderDriver& driver;
  order::Timeline& time;

  // A whole submission; false: it must not be made.
  [[nodiscard]] bool submit(order::Lane lane) const {
    if (!time.before_submit(lane, stream_of(lane))) return false;
    time.after_submit(lane);
    return true;
  }
  void work(order::Lane lane) const {
    if (!submit(lane)) FAIL("a submission was forbidden");
  }
  // A free in which no seal is due: the stamp of the block.
  order::Epoch free() const { return time.open(); }
  // One in which a seal is.
  order::Epoch free_and_seal() const {
    const order::Epoch stamp = time.open();
    driver.in_free = true;
    time.seal_in_free();
    driver.in_free = false;
    return stamp;
  }
  // One in the order of a stream, which tells when all work is over.
  void free_in_order() const {
    time.keep_events();
    time.seal_for_completion();
  }
  // One that waits on the host for all work before it.
  order::Epoch free_and_wait() const {
    const order::Epoch stamp = time.open();
    driver.in_free = true;
    time.wait_in_free();
    driver.in_free = false;
    return stamp;
  }
  // Work of a lane, and the free of what it used.
  order::Epoch use_and_free(order::Lane lane) const {
    work(lane);
    return free_and_seal();
  }
  // False: a block with this stamp may not be handed out.
  bool hand_out(order::Epoch stamp, driver::Address block = kSomeBlock) const {
    if (stamp > time.reachable()) return false;
    time.lean_on(time.is_idle() ? 0 : stamp, block);
    return true;
  }
  // The program's own wait.
  void wait(order::Lane lane, bool succeeded) const {
    const order::Epoch epoch = time.begin_wait(lane);
    time.end_wait(epoch, succeeded);
  }
  // All work ends, and somebody looks.
  void finish() const {
    driver.finish();
    time.advance();
  }
};

struct OrderWorld {
  OrderDriver driver;
  order::CaptureGate gate;
  order::Contexts contexts;
  order::Timeline time{driver, gate, contexts};
  OrderSteps app{driver, time};

  OrderWorld() {
    driver.done_at_once = false;
    contexts.add(kFirst);
    time.begin(kFirst);
  }
};

// Several contexts, as hooks see them.
struct Process {
  OrderDriver driver;
  order::Timelines all{&driver};

  Process() {
    driver.done_at_once = false;
    all.join(kFirst);
    all.of(kFirst);
  }
  OrderSteps of(driver::Context context) { return {driver, *all.of(context)}; }
};

// Work ends after so many questions: somebody waits for it.
inline void finish_after(OrderDriver& driver, uint64_t questions) {
  driver.on_query = [&driver, questions, asked = uint64_t{0}]() mutable {
    if (++asked == questions) driver.finish();
  };
}

}  // namespace cupool::test
