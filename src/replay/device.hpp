// The driver below a replayed pool: memory and chunks are numbers, given where the driver gave a segment of
// that size when the program was recorded (of ranges that fit alike the pool takes the lower), else at the
// lowest addresses that are free, as the real driver reuses them; events are done when the record says that
// their work was, when the program waited for it, or so many launches later. Keeps account of what it was
// asked and of what each device has given. One thread at a time calls it, so it has no lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "driver/driver.hpp"
#include "driver/mapping.hpp"
#include "driver/source.hpp"
#include "replay/program.hpp"

namespace cupool::replay {

// How far the device is behind the program.
struct Lag {
  static constexpr uint64_t kUntilWaited = ~uint64_t{0};
  uint64_t launches = kUntilWaited;  // 0: not at all
};

// Free addresses, the lowest first.
class Addresses {
 public:
  Addresses(driver::Address begin, uint64_t bytes) { gaps_[begin] = bytes; }
  driver::Address take(uint64_t bytes);
  // These; false: they are not free.
  bool take_at(driver::Address at, uint64_t bytes);
  void give(driver::Address at, uint64_t bytes);

 private:
  std::map<driver::Address, uint64_t> gaps_;
};

class Device final : public driver::Driver, public driver::Source, public driver::Mapping {
 public:
  Device(const Program& program, uint64_t capacity, Lag lag);

  // The step that is played, and the context that is current.
  void set_step(uint64_t step, bool is_look = false) {
    step_ = step;
    is_look_ = is_look;
  }
  void enter(size_t place) { place_ = place; }
  static driver::Context context(size_t place) { return reinterpret_cast<driver::Context>((place + 1) << 8); }
  void note_launch() { ++launches_; }
  // All work of a context, as far as it is recorded by events, is done: the program waited for it.
  void finish(size_t place);

  uint64_t reserved() const { return reserved_all_; }
  uint64_t peak() const { return peak_all_; }
  uint64_t peak_of(int device) const { return devices_[static_cast<size_t>(device)].peak; }
  // Calls that take or give memory: allocations, frees, chunks that are mapped or given back.
  uint64_t calls() const { return calls_; }
  uint64_t refusals() const { return refusals_; }
  bool has_refused() const { return refusals_ != 0; }

  driver::Status device(int* number) override;
  driver::Status memory(size_t* free, size_t* total) override;
  driver::Status create_stream(driver::Context, driver::Stream* out) override;
  bool is_capturing(driver::Stream) override { return false; }
  bool has_context_events() const override { return true; }
  driver::Status create_event(driver::Context, driver::Event* out) override;
  driver::Status record(driver::Context context, driver::Event event) override;
  driver::Status record_on(driver::Stream, driver::Event event) override;
  driver::Status query(driver::Event event) override;
  driver::Status query_to_count(driver::Event) override { return driver::kSuccess; }
  driver::Status order_after(driver::Context, driver::Event) override { return driver::kSuccess; }
  driver::Status wait_on(driver::Stream, driver::Event) override { return driver::kSuccess; }
  driver::Status synchronize(driver::Context context) override;

  driver::Status allocate(size_t bytes, driver::Address* out) override;
  driver::Status release(driver::Address start) override;
  driver::Status release_in(driver::Context context, driver::Address start) override;
  driver::Status release_on(driver::Context, driver::Stream, driver::Address start) override {
    return release(start);
  }
  bool might_give(int device, uint64_t bytes) override;

  bool can_map(int) override { return true; }
  driver::Status reserve(uint64_t bytes, driver::Address* out) override;
  driver::Status unreserve(driver::Address start, uint64_t bytes) override;
  driver::Status create(int device, driver::Backing backing, uint64_t bytes, driver::Chunk* out) override;
  driver::Status release(driver::Chunk chunk) override;
  driver::Status map(driver::Address at, uint64_t bytes, driver::Chunk chunk) override;
  driver::Status unmap(driver::Address start, uint64_t bytes) override;
  driver::Status allow(driver::Address, uint64_t, const int*, size_t, Access) override {
    return driver::kSuccess;
  }
  driver::Status retain(driver::Address address, driver::Chunk* out) override;
  driver::Status export_chunk(driver::Chunk, int*) override { return driver::kNotSupported; }
  driver::Status import_chunk(int, driver::Chunk*) override { return driver::kNotSupported; }

 private:
  static constexpr uint64_t kReservable = uint64_t{1} << 46;
  static constexpr uint64_t kStep = 2 << 20;    // the driver gives device memory in such
  static constexpr uint64_t kShared = 1 << 20;  // allocations up to this size share such a step
  struct One {
    uint64_t reserved = 0;
    uint64_t peak = 0;
  };
  struct Taken {
    uint64_t bytes = 0;
    int device = 0;
    driver::Address slab = 0;  // 0: it has memory of its own
  };
  // Up to 1 MiB the driver cuts allocations from steps that it shares out.
  struct Slab {
    int device = 0;
    std::map<driver::Address, uint64_t> gaps;
  };
  struct Chunk {
    uint64_t bytes = 0;
    int device = 0;
    bool is_host = false;
    bool is_released = false;
    int uses = 0;  // mappings and further handles
  };
  struct Recording {
    size_t place = 0;
    uint64_t number = 0;  // Place::Done::event()
    uint64_t launches = 0;
    bool is_done = true;
  };
  // How far a place has come in its list of what was done when.
  struct Known {
    size_t next = 0;
    size_t next_in_vain = 0;
    uint64_t asked = 0;     // since the poll before that found something
    uint64_t recorded = 0;  // events in `step`
    uint64_t step = 0;
    uint64_t waited = ~uint64_t{0};  // the last step in which a call of ours waited for all
  };

  driver::Address place_for(int device, uint64_t asked, uint64_t taken);
  bool book(int device, uint64_t bytes);
  void unbook(int device, uint64_t bytes);
  bool take_shared(int device, uint64_t bytes, driver::Address* out);
  void give_shared(driver::Address start, const Taken& taken);
  bool is_done(const Recording& event) const;
  // The program's record at a question about work of a place.
  void learn(size_t place);
  // Whether a wait of this step is given up in the record; if it has come to that, its time is over.
  bool is_in_vain(size_t place);
  // What was recorded in its context up to that moment.
  void finish_up_to(const Recording& last);
  void give_if_unused(uint64_t number);
  int device_here() const { return program_.places[place_].device; }

  const Program& program_;
  const uint64_t capacity_;
  const Lag lag_;
  size_t place_ = 0;
  uint64_t step_ = 0;
  bool is_look_ = false;
  uint64_t launches_ = 0;
  uint64_t calls_ = 0;
  uint64_t refusals_ = 0;
  uint64_t reserved_all_ = 0;
  uint64_t peak_all_ = 0;
  std::vector<One> devices_;
  Addresses addresses_{0x7f0000000000, uint64_t{1} << 43};
  std::map<std::pair<int, uint64_t>, std::deque<driver::Address>> recorded_;  // by device and size
  Addresses reservations_{0x100000000000, kReservable};
  std::map<driver::Address, Taken> taken_;
  std::map<driver::Address, Slab> slabs_;
  std::map<uint64_t, Chunk> chunks_;
  std::map<driver::Address, std::pair<uint64_t, uint64_t>> mapped_;  // bytes, number of the chunk
  uint64_t last_chunk_ = 0;
  uint64_t streams_ = 0;
  std::vector<Recording> events_;
  std::vector<Known> known_;      // of each place
  std::vector<size_t> not_done_;  // events
  uint64_t questions_ = 0;        // since something was recorded or a step began
  uint64_t asked_in_ = 0;         // that step
};

}  // namespace cupool::replay
