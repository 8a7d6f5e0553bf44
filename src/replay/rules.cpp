// See rules.hpp.
#include "replay/rules.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "replay/caching_rules.hpp"
#include "replay/device.hpp"

namespace cupool::replay {

namespace {

// What is common to all: who holds what.
template <typename Allocator>
Figures play_with(Allocator& allocator, const Program& program) {
  struct Held {
    uint64_t handle;
    uint64_t bytes;
    uint8_t place;
    bool is_held;
  };
  Figures figures;
  std::vector<Held> held(program.blocks, Held{});
  uint64_t live = 0;
  for (const Step& step : program.steps) {
    if (step.what == Do::kAllocate) {
      const uint64_t calls = allocator.calls();
      const uint64_t handle = allocator.allocate(step);
      ++figures.allocations;
      if (handle == 0) {
        ++figures.failed;
        continue;
      }
      held[step.block] = {handle, step.bytes, step.place, true};
      if (allocator.calls() == calls) ++figures.hits;
      live += step.bytes;
      figures.peak_live = std::max(figures.peak_live, live);
      figures.peak_reserved = std::max(figures.peak_reserved, allocator.reserved());
    } else if (step.what == Do::kFree && held[step.block].is_held) {
      Held& block = held[step.block];
      figures.waits += allocator.release(block.handle, block.bytes, block.place);
      live -= block.bytes;
      block.is_held = false;
    } else if (step.what == Do::kContextEnds) {
      for (Held& block : held) {
        if (!block.is_held || block.place != step.place) continue;
        allocator.release(block.handle, block.bytes, block.place);
        live -= block.bytes;
        block.is_held = false;
      }
    } else {
      allocator.note(step);
    }
  }
  figures.driver_calls = allocator.calls();
  figures.last_reserved = allocator.reserved();
  figures.most_on_a_device = allocator.most_on_a_device();
  return figures;
}

class PyTorch {
 public:
  PyTorch(const Program& program, bool expandable, uint64_t capacity)
      : program_(program),
        devices_(static_cast<size_t>(program.devices()), CachingRules(expandable, capacity)) {}
  uint64_t allocate(const Step& step) {
    const auto device = static_cast<size_t>(program_.places[step.place].device);
    return devices_[device].allocate(step.bytes, static_cast<long>(step.stream));
  }
  uint64_t release(uint64_t handle, uint64_t, uint8_t place) {
    devices_[static_cast<size_t>(program_.places[place].device)].release(handle);
    return 0;
  }
  void note(const Step&) {}
  uint64_t reserved() const {
    return sum([](const CachingRules& one) { return one.reserved(); });
  }
  uint64_t calls() const {
    return sum([](const CachingRules& one) { return one.driver_allocations(); });
  }
  uint64_t most_on_a_device() const {
    uint64_t most = 0;
    for (const CachingRules& one : devices_) most = std::max(most, one.peak());
    return most;
  }

 private:
  template <typename F>
  uint64_t sum(F&& f) const {
    uint64_t all = 0;
    for (const CachingRules& one : devices_) all += f(one);
    return all;
  }
  const Program& program_;
  std::vector<CachingRules> devices_;
};

class OnDevice {
 public:
  OnDevice(const Program& program, uint64_t capacity)
      : program_(program), device_(program, capacity, Lag{}) {}
  uint64_t reserved() const { return device_.reserved(); }
  uint64_t calls() const { return device_.calls(); }
  uint64_t most_on_a_device() const {
    uint64_t most = 0;
    for (int i = 0; i < program_.devices(); ++i) most = std::max(most, device_.peak_of(i));
    return most;
  }

 protected:
  // 0: the device has no more.
  uint64_t take(uint64_t bytes, uint8_t place) {
    device_.enter(place);
    driver::Address address = 0;
    return device_.allocate(bytes, &address) == driver::kSuccess ? address : 0;
  }
  void give(uint64_t address) { device_.release(driver::Address{address}); }

 private:
  const Program& program_;
  Device device_;
};

class ExactBins : public OnDevice {
 public:
  using OnDevice::OnDevice;
  uint64_t allocate(const Step& step) {
    auto& bin = bins_[{step.place, rounded(step.bytes)}];
    if (bin.empty()) {
      const uint64_t address = take(rounded(step.bytes), step.place);
      if (address != 0 || !give_all()) return address;
      return take(rounded(step.bytes), step.place);
    }
    const uint64_t address = bin.back();
    bin.pop_back();
    return address;
  }
  uint64_t release(uint64_t handle, uint64_t bytes, uint8_t place) {
    bins_[{place, rounded(bytes)}].push_back(handle);
    return 0;
  }
  void note(const Step&) {}

 private:
  // False: there was nothing.
  bool give_all() {
    bool is_any = false;
    for (auto& [of, bin] : bins_) {
      for (const uint64_t address : bin) give(address);
      is_any = is_any || !bin.empty();
      bin.clear();
    }
    return is_any;
  }
  static uint64_t rounded(uint64_t bytes) { return round_up(std::max<uint64_t>(bytes, 512), uint64_t{512}); }
  std::map<std::pair<uint8_t, uint64_t>, std::vector<uint64_t>> bins_;
};

// A free waits if work is pending in the context: some was submitted since the host last waited for all.
class Driver : public OnDevice {
 public:
  using OnDevice::OnDevice;
  uint64_t allocate(const Step& step) { return take(step.bytes, step.place); }
  uint64_t release(uint64_t handle, uint64_t, uint8_t place) {
    give(handle);
    return std::exchange(is_busy_[place], false) ? 1 : 0;
  }
  void note(const Step& step) {
    if (step.what == Do::kWork) is_busy_[step.place] = true;
    const bool waited = step.what == Do::kWait || step.what == Do::kWaitEnds;
    if (waited && step.stream == 0) is_busy_[step.place] = false;
  }

 private:
  std::map<uint8_t, bool> is_busy_;
};

}  // namespace

const char* name_of(Rules rules) {
  switch (rules) {
    case Rules::kPyTorch:
      return "PyTorch's rules";
    case Rules::kExpandable:
      return "PyTorch, expandable";
    case Rules::kExactBins:
      return "exact-size bins";
    case Rules::kDriver:
      return "the driver alone";
  }
  return "";
}

Figures play_by(Rules rules, const Program& program, uint64_t capacity) {
  if (rules == Rules::kExactBins) {
    ExactBins bins(program, capacity);
    return play_with(bins, program);
  }
  if (rules == Rules::kDriver) {
    Driver driver(program, capacity);
    return play_with(driver, program);
  }
  PyTorch cache(program, rules == Rules::kExpandable, capacity);
  return play_with(cache, program);
}

}  // namespace cupool::replay
