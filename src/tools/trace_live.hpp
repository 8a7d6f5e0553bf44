// What a program holds while the events of its trace go by, one after the other in the order of time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/trace_reader.hpp"
#include "trace/events.hpp"

namespace cupool::tools {

// Whether memory of a kind is the host's.
inline bool is_host_memory(uint64_t kind) {
  const auto which = static_cast<trace::Kind>(kind);
  return which == trace::Kind::kPinned || which == trace::Kind::kRegistered || which == trace::Kind::kSpilled;
}

// What the program holds while its events go by. Of each place the latest counts.
class TraceLive {
 public:
  explicit TraceLive(const TraceAbout& about);
  struct Block {
    uint64_t time = 0;
    uint64_t asked = 0;
    uint64_t more = 0;
    uint64_t context = 0;
    uint64_t stack = 0;
    uint64_t sample = 0;  // its stack was drawn, one in so many bytes; 0: every one has its stack
    uint32_t thread = 0;
    uint32_t call = 0;
    uint16_t device = 0;
    uint8_t kind = 0;
    bool is_live = false;
    uint64_t given() const { return asked + more; }
    // How many allocations a drawn one stands for.
    double weight() const;
  };
  struct Sum {
    uint64_t blocks = 0;
    uint64_t asked = 0;
    uint64_t given = 0;
    uint64_t most = 0;  // the highest `given`
  };
  void see(const Happened& happened);
  // By device and kind.
  const std::map<std::pair<uint64_t, uint64_t>, Sum>& sums() const { return sums_; }
  // Of the kinds that the counters of a device count: pool, whole, native.
  Sum counted(uint64_t device) const;
  // Of device memory of every kind, on all devices: how much it is, how much it was at most, and after how
  // many events.
  uint64_t device_bytes() const { return device_bytes_; }
  uint64_t most_device_bytes() const { return most_device_bytes_; }
  uint64_t most_after() const { return most_after_; }
  uint64_t seen() const { return seen_; }
  // Calls f(block) for each that is live, in no order.
  template <typename F>
  void for_each(F&& f) const {
    for (const auto& all : blocks_) {
      for (const auto& [address, block] : all) {
        if (block.is_live) f(block);
      }
    }
  }

 private:
  uint64_t value(const Happened& happened, int field) const {
    return field < 0 ? 0 : happened.values[static_cast<size_t>(field)];
  }
  void add(uint8_t space, uint64_t address, const Block& now);
  void end_context(uint64_t context, uint64_t time);
  void drop(Block& block, uint64_t time);

  struct Fields {
    int address, asked, more, context, device, kind, stack, sample, call;
  };
  Fields fields_of(std::string_view event) const;
  const TraceAbout& about_;
  size_t allocated_, freed_, live_, context_ended_;
  Fields of_allocated_, of_freed_, of_live_, of_context_ended_;
  // By address; memory of other kinds than plain is told apart by more than that (trace::space_of).
  std::array<std::unordered_map<uint64_t, Block>, 4> blocks_;
  std::map<std::pair<uint64_t, uint64_t>, Sum> sums_;
  uint64_t device_bytes_ = 0;
  uint64_t most_device_bytes_ = 0;
  uint64_t most_after_ = 0;
  uint64_t seen_ = 0;
  // Where the blocks of each context are, and some that are gone.
  struct Places {
    size_t live = 0;
    std::vector<std::pair<uint8_t, uint64_t>> all;
  };
  std::unordered_map<uint64_t, Places> contexts_;
};

}  // namespace cupool::tools
