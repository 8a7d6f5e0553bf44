// The things the simulated driver knows: work, streams, events, contexts, devices. Plain records; what may be
// done to them lives in streams.*, scheduler.*, contexts.*, allocations.*, capture.* and graphs.*.
// Everything here is guarded by the one state mutex (state.hpp). Shared pointers keep an object alive while
// work that names it is still queued, after its handle is gone.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/clock.hpp"
#include "sim/origin.hpp"
#include "sim/slabs.hpp"

namespace cupool::sim {

struct Context;
struct Capture;
struct GraphNode;

// Device bytes an operation touches.
struct Span {
  CUdeviceptr lo = 0;
  CUdeviceptr hi = 0;
};

// What an operation does, once it is its turn. Immutable once submitted: a graph submits it many times.
struct Work {
  std::string what;
  std::vector<Span> touches;
  std::function<CUresult()> run;  // under the state mutex; an error makes the context fail for good
  std::function<void()> host;     // a program's own function: runs with the mutex released
  std::function<bool()> ready;    // extra condition (a waited-for value in memory)
  unsigned steps = 1;             // scheduler steps it takes
  bool kernel = false;
  bool overlaps = false;  // a programmatic launch: may begin before what precedes it in its stream has ended
  bool mark = false;      // an event's record or wait, which such a launch does not take for its predecessor
  bool library = false;   // a wait that the preloaded library put into a stream of the program's
  std::vector<Span> brings;  // of the beginning of a graph: what its nodes touch
};

struct Op {
  std::shared_ptr<const Work> work;
  VectorClock after;
  unsigned steps_left = 1;
};

enum class StreamKind { kLegacy, kPerThread, kUser, kHidden };

struct Stream {
  std::uint64_t id = 0;
  TimelineId timeline = 0;
  Context* context = nullptr;  // outlives its streams' queues: a context drains before it goes
  StreamKind kind = StreamKind::kUser;
  CUstream handle = nullptr;
  unsigned flags = 0;
  int priority = 0;
  bool destroyed = false;
  bool in_host_function = false;
  unsigned graphs_arriving = 0;  // launches and uploads under way: a wait made meanwhile is lost
  unsigned standing = 0;         // calls that wait for room in the queue
  std::size_t pieces = 0;        // in the queue, marks not counted
  std::deque<Op> queue;
  TimelineId waits_for = 0;  // of those that its first operation was seen to wait for
  VectorClock clock;         // everything the stream's last operation is ordered after, itself included
  VectorClock
      front;  // what the newest operation but marks is ordered after: an overlapping one begins with it
  VectorClock firm;  // waits that do not lead back to the stream itself: an overlapping operation keeps them
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> capture_tips;  // what the next captured node depends on

  bool blocking() const {
    return kind == StreamKind::kPerThread ||
           (kind == StreamKind::kUser && (flags & CU_STREAM_NON_BLOCKING) == 0);
  }
};

// One recording of an event: waits and queries hold the recording they saw.
struct EventRecord {
  VectorClock clock;
  std::uint64_t time_ns = 0;
  Origin origin = present_origin();
};

struct Event {
  CUevent handle = nullptr;
  std::uint64_t context_id = 0;
  unsigned flags = 0;
  std::shared_ptr<EventRecord> record;  // null: never recorded
  std::weak_ptr<Capture> capture;       // set when the last recording went into a capture
  std::vector<GraphNode*> capture_tips;
  bool recorded_in_capture = false;
};

struct Context {
  CUcontext handle = nullptr;
  std::uint64_t id = 0;  // unique for the life of the process: the same handle comes back, the id never does
  int device = 0;
  bool primary = false;
  bool active = true;
  unsigned attached = 0;             // by cuCtxAttach: so many times cuCtxDetach does not end it
  std::shared_ptr<Context> part_of;  // of a green context: the primary one, which owns its memory
  unsigned flags = 0;
  CUresult error = CUDA_SUCCESS;  // sticky
  VectorClock floor;              // what cuCtxWaitEvent made all later work wait for
  std::vector<std::pair<VectorClock, std::string>> added_waits;  // the latest context waits, for reports
  VectorClock submitted;      // the clocks of all its streams, of destroyed ones too
  VectorClock gone_blocking;  // of destroyed ones that the legacy stream orders with
  std::shared_ptr<Stream> legacy;
  std::vector<std::shared_ptr<Stream>> streams;  // all of them, hidden and destroyed-but-busy ones too
  std::unordered_map<std::uint64_t, std::shared_ptr<Stream>> per_thread;
  std::map<CUlimit, std::size_t> limits;
  bool has_stacks = false;                                     // memory for a kernel with a large stack
  bool has_heap = false;                                       // memory for malloc in kernels
  std::vector<std::pair<CUdeviceptr, std::uint64_t>> charged;  // of the driver for itself: start, granules
  std::vector<std::uint64_t> peers;                            // ids of contexts this one may reach
  Slabs slabs;

  Context& memory_owner() { return part_of != nullptr ? *part_of : *this; }
  // The context that this one is, or is a part of.
  std::uint64_t whole_id() const { return part_of != nullptr ? part_of->id : id; }
};

struct MemPool;

struct Device {
  int ordinal = 0;
  CUcontext primary_handle = nullptr;
  unsigned primary_refs = 0;
  unsigned primary_flags = 0;
  CUmemoryPool default_pool = nullptr;
  CUmemoryPool current_pool = nullptr;
};

enum class KernelKind { kFill, kCheck, kSpin, kAwait, kDeep, kHeap };

struct Module {
  std::uint64_t context_id = 0;  // 0: a library, usable in every context
};

struct Function {
  KernelKind kernel = KernelKind::kSpin;
  std::uint64_t context_id = 0;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  bool is_loaded = false;  // launched before
  CUfunction handle = nullptr;
};

}  // namespace cupool::sim
