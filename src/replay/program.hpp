// What a program did with device memory, in the order in which it did it: the steps that a replay plays
// (player.hpp) and other allocators are compared by (rules.hpp), whatever file they were read from. Plain
// data, made by a reader, then not changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cupool::replay {

enum class Do : uint8_t {
  kAllocate,    // `bytes` as `block`, on `stream` (0: none)
  kFree,        // `block`
  kWork,        // submitted to `stream`, a number of order/lane.hpp
  kWait,        // the host waits for `stream` (0: all) until all its work is done
  kWaitBegins,  // the same in two steps, of which others of other threads may lie between
  kWaitEnds,    // the one that began as `block`
  kWaitFailed,
  kWaited,      // the host has waited for something
  kStreamEnds,  // `stream` is destroyed
  kContextEnds,
  kThreadEnds,
  kLook,  // cupool's own thread saw how far the device was
  // Stricter rules of reuse from now on: of `place`, or of all (kNoPlace).
  kUntracked,
  kCompletedOnly,
  kDirectAccess,
  kCompare,  // the recorded counters at this moment are `checks[block]`
};

inline constexpr uint16_t kNoThread = 0xffff;  // cupool's own
inline constexpr uint8_t kNoPlace = 0xff;      // a context without memory of the pool
inline constexpr uint8_t kNotKnown = 0xff;

struct Step {
  uint64_t time = 0;    // nanoseconds; 0: not known
  uint64_t bytes = 0;   // asked for
  uint64_t stream = 0;  // 0: none, all
  uint32_t block = 0;   // of an allocation or a free, counted from 0; of a wait, its number
  uint16_t thread = 0;
  uint8_t place = 0;  // the context
  Do what = Do::kAllocate;
};

// A context, on a device.
struct Place {
  int device = 0;
  // From step `seen` on all events up to `upto` were known to be done: both rise. An event is named by the
  // step that it was recorded in, and by how many that step had recorded then.
  struct Done {
    static constexpr uint64_t kMostInAStep = 255;
    static uint64_t event(uint64_t step, uint64_t number) {
      return step << 8 | (number < kMostInAStep ? number : kMostInAStep);
    }
    // A poll of the program's thread found it, after the driver had been asked `asked` times since the poll
    // before that found something; or a look of our own thread; or the program had waited.
    enum class By : uint8_t { kPoll, kLook, kWait };
    uint64_t upto = 0;
    uint64_t seen = 0;
    uint64_t asked = 0;
    By by = By::kWait;
  };
  std::vector<Done> done;
  // In step `seen` the pool gave up a wait, after the driver had been asked so often since the poll before
  // that found something.
  struct InVain {
    uint64_t seen = 0;
    uint64_t asked = 0;
  };
  std::vector<InVain> in_vain;
};

struct Check {
  uint64_t live = 0;
  uint64_t asked = 0;
  uint64_t reserved = 0;
  int device = 0;
};

// What the pool did when the program was recorded.
struct Segment {
  uint64_t address = 0;
  uint64_t bytes = 0;
  int device = 0;
};
struct Recorded {
  uint64_t peak_reserved = 0;  // of all devices
  uint64_t driver_calls = 0;
  uint64_t waits = 0;
  std::vector<Segment> segments;  // taken from the driver, in this order
};

struct Program {
  std::string form;  // whose file it was
  std::vector<Step> steps;
  std::vector<Place> places{1};
  uint32_t blocks = 0;
  uint32_t threads = 1;
  bool has_times = false;
  bool has_waits = false;   // else the device counts as never behind
  bool knows_done = false;  // when work was done; else only what the program waited for is
  std::vector<Check> checks;
  std::vector<uint32_t> stacks;          // of each block, a number; empty: not known
  std::vector<uint8_t> served;           // of each block, how (stats::Service::How); kNotKnown; may be short
  std::vector<std::string> stack_names;  // of that number: its innermost frames
  bool has_recorded = false;
  Recorded recorded;
  uint64_t device_bytes = 0;  // of the largest device; 0: not known
  uint64_t beside = 0;        // most that others than the pool had on one device beside blocks; 0: not known
  uint64_t left_out = 0;      // allocations that are no device memory of the pool's, and are not played
  uint64_t first_held = 0;    // blocks that were held before the record began

  int devices() const {
    int most = 0;
    for (const Place& place : places) most = place.device > most ? place.device : most;
    return most + 1;
  }
};

}  // namespace cupool::replay
