// A trace for Perfetto: counters of memory at the moments of a picture, phases and host waits as slices of
// their threads, and the stacks that held device memory at the peak, weighted by bytes, as a heap profile.
#include <algorithm>
#include <map>

#include "see/exports.hpp"
#include "see/findings.hpp"
#include "see/protobuf.hpp"

namespace cupool::see {
namespace {

// Numbers of fields of Perfetto's messages.
namespace trace_field {
constexpr uint32_t kPacket = 1;
}
namespace packet {
constexpr uint32_t kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kInterned = 12, kFlags = 13,
                   kProfile = 37, kTrackDescriptor = 60;
}
namespace track {
constexpr uint32_t kUuid = 1, kName = 2, kProcess = 3, kThread = 4, kParent = 5, kCounter = 8;
}
namespace event {
constexpr uint32_t kType = 9, kTrack = 11, kCategory = 22, kName = 23, kCounterValue = 30;
constexpr uint64_t kBegin = 1, kEnd = 2, kCounter = 4;
}  // namespace event
namespace interned {
constexpr uint32_t kFunctions = 5, kFrames = 6, kStacks = 7, kBuildIds = 16, kPaths = 17, kMappings = 19;
}

constexpr uint64_t kSequenceNumber = 1;
constexpr uint64_t kProcessTrack = 1;
constexpr uint64_t kFirstCounterTrack = 1000;
constexpr uint64_t kFirstThreadTrack = 1'000'000;  // each has two: its own, and one for waits

class Writer {
 public:
  Writer(std::FILE* file, const Model& model, const Holders& holders, const Picture& picture)
      : file_(file), model_(model), holders_(holders), picture_(picture) {}

  void write() {
    tracks();
    counters();
    slices();
    profile();
  }

 private:
  void put(uint64_t time, Message packet) {
    if (time != 0) packet.number(packet::kTimestamp, time);
    packet.number(packet::kSequence, kSequenceNumber);
    // (The first one clears what a sequence may have known.)
    packet.number(packet::kFlags, is_first_ ? 1 : 2);
    is_first_ = false;
    const std::string bytes = Message().message(trace_field::kPacket, packet).bytes();
    fwrite(bytes.data(), 1, bytes.size(), file_);
  }
  void describe(const Message& descriptor) {
    put(0, Message().message(packet::kTrackDescriptor, descriptor));
  }
  void tell(uint64_t time, const Message& event) { put(time, Message().message(packet::kTrackEvent, event)); }

  void tracks() {
    const tools::TraceAbout& about = model_.about();
    Message process;
    process.number(1, about.pid).text(6, about.program);
    describe(Message().number(track::kUuid, kProcessTrack).message(track::kProcess, process));
    for (size_t i = 0; i < model_.threads.size(); ++i) {
      Message thread;
      thread.number(1, about.pid).number(2, model_.threads[i]);
      describe(Message()
                   .number(track::kUuid, thread_track(i))
                   .number(track::kParent, kProcessTrack)
                   .message(track::kThread, thread));
      describe(Message()
                   .number(track::kUuid, thread_track(i) + 1)
                   .number(track::kParent, thread_track(i))
                   .text(track::kName, "host waits"));
    }
  }
  static uint64_t thread_track(size_t thread) { return kFirstThreadTrack + 2 * thread; }

  void counter(const std::string& name, const std::vector<uint64_t>& values) {
    const uint64_t uuid = next_counter_++;
    Message what;
    what.number(3, 3);  // its unit: bytes
    describe(Message()
                 .number(track::kUuid, uuid)
                 .number(track::kParent, kProcessTrack)
                 .text(track::kName, name)
                 .message(track::kCounter, what));
    uint64_t last = kNever;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == last) continue;
      last = values[i];
      tell(picture_.times[i], Message()
                                  .number(event::kType, event::kCounter)
                                  .number(event::kTrack, uuid)
                                  .number(event::kCounterValue, values[i]));
    }
  }
  void counters() {
    for (const Series& one : picture_.live)
      counter("device " + std::to_string(one.device) + ": " + model_.kind_name(one.kind), one.bytes);
    for (size_t device = 0; device < picture_.reserved.size(); ++device) {
      const std::string name = "device " + std::to_string(device) + ": ";
      counter(name + "taken by the pool", picture_.reserved[device]);
      if (picture_.totals[device] != 0) counter(name + "in use, says the driver", picture_.used[device]);
    }
  }

  void slice(uint64_t begin, uint64_t end, uint64_t uuid, const char* category, const std::string& name) {
    tell(begin, Message()
                    .number(event::kType, event::kBegin)
                    .number(event::kTrack, uuid)
                    .text(event::kCategory, category)
                    .text(event::kName, name));
    tell(end, Message().number(event::kType, event::kEnd).number(event::kTrack, uuid));
  }
  void slices() {
    // In the order in which they came: a viewer leaves what has the same time as it is.
    const auto begin = [&](const Phase& one) {
      tell(one.begin, Message()
                          .number(event::kType, event::kBegin)
                          .number(event::kTrack, thread_track(one.thread))
                          .text(event::kCategory, "phase")
                          .text(event::kName, model_.phase_names[one.name]));
    };
    const auto end = [&](const Phase& one, uint64_t time) {
      tell(time, Message().number(event::kType, event::kEnd).number(event::kTrack, thread_track(one.thread)));
    };
    for (const uint32_t edge : model_.phase_edges) {
      const Phase& one = model_.phases[edge & ~kIsFree];
      if ((edge & kIsFree) != 0) {
        end(one, one.end);
      } else {
        begin(one);
      }
    }
    for (auto one = model_.phases.rbegin(); one != model_.phases.rend(); ++one) {
      if (one->end == kNever) end(*one, model_.last);
    }
    // A track for each row: within one, none lies across another.
    size_t rows = 0;
    for (const Phase& one : model_.ranges) rows = std::max<size_t>(rows, one.depth + size_t{1});
    const uint64_t first_row = thread_track(model_.threads.size());
    for (size_t row = 0; row < rows; ++row)
      describe(Message()
                   .number(track::kUuid, first_row + row)
                   .number(track::kParent, kProcessTrack)
                   .text(track::kName, "ranges"));
    for (const Phase& one : model_.ranges)
      slice(one.begin, std::min(one.end, model_.last), first_row + one.depth, "phase",
            model_.phase_names[one.name]);
    for (const Wait& one : model_.waits)
      slice(one.time - one.ns, one.time, thread_track(one.thread) + 1, "wait",
            model_.call_name(one.call) + " (" + model_.cause_name(one.cause) + ")");
  }

  void profile() {
    Message data;
    std::map<std::string, uint64_t> libraries;
    data.message(interned::kBuildIds, Message().number(1, 1).bytes(2, ""));
    for (const Frame& frame : holders_.table()) {
      const auto [at, is_new] = libraries.try_emplace(frame.library, libraries.size() + 1);
      if (!is_new) continue;
      data.message(interned::kPaths, Message().number(1, at->second).text(2, frame.library));
      data.message(interned::kMappings, Message()
                                            .number(1, at->second)
                                            .number(2, 1)
                                            .number(4, 0)
                                            .number(5, kNever >> 1)
                                            .number(7, at->second));
    }
    for (size_t i = 0; i < holders_.table().size(); ++i) {
      const Frame& frame = holders_.table()[i];
      data.message(interned::kFunctions, Message().number(1, i + 1).text(2, frame.text()));
      data.message(
          interned::kFrames,
          Message().number(1, i + 1).number(2, i + 1).number(3, libraries[frame.library]).number(4, i));
    }
    const std::vector<HolderSums> sums = sums_of(model_, holders_, picture_);
    Message heap;
    heap.number(1, model_.about().pid).number(3, 1).number(9, picture_.times[picture_.peak]);
    for (uint32_t i = 0; i < sums.size(); ++i) {
      Message stack;
      stack.number(1, uint64_t{i} + 1);
      for (const uint32_t frame : holders_.frames(i)) stack.number(2, uint64_t{frame} + 1);
      data.message(interned::kStacks, stack);
      if (sums[i].held_bytes == 0) continue;
      heap.message(2, Message()
                          .number(1, uint64_t{i} + 1)
                          .number(2, sums[i].held_bytes)
                          .number(3, 0)
                          .number(5, sums[i].held_blocks)
                          .number(6, 0));
    }
    heap.text(11, "device memory");
    Message all;
    all.message(packet::kInterned, data);
    all.message(packet::kProfile, Message().message(5, heap).number(7, 0));
    put(picture_.times[picture_.peak], all);
  }

  std::FILE* file_;
  const Model& model_;
  const Holders& holders_;
  const Picture& picture_;
  bool is_first_ = true;
  uint64_t next_counter_ = kFirstCounterTrack;
};

}  // namespace

void write_perfetto(std::FILE* file, const Model& model, const Holders& holders, const Picture& picture) {
  Writer(file, model, holders, picture).write();
}

}  // namespace cupool::see
