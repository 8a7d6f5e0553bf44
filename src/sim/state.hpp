// The one state of the simulated driver and its one mutex. Started by cuInit, never torn down: programs call
// the driver from exit handlers. What a thread has of its own (current contexts, default stream, capture
// mode) is thread-local and needs no lock.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "sim/added_waits.hpp"
#include "sim/allocations.hpp"
#include "sim/arena.hpp"
#include "sim/clock.hpp"
#include "sim/handles.hpp"
#include "sim/model.hpp"
#include "sim/oracle.hpp"

namespace cupool::sim {

struct WaitingThread;

// The state mutex counts who is on the way in: a thread that sleeps on it is not one that hangs.
class StateMutex {
 public:
  void lock() {
    callers_.fetch_add(1);
    lock_again();
    callers_.fetch_sub(1);
  }
  // For a thread in the list of those that wait.
  void lock_again() {
    is_here_ = true;
    mutex_.lock();
  }
  void unlock() {
    mutex_.unlock();
    is_here_ = false;
  }
  bool has_callers() const { return callers_.load() != 0; }
  // Whether this thread has it, or is about to: then a signal handler has interrupted it, and must not ask.
  static bool is_here() { return is_here_; }

 private:
  static inline constinit thread_local volatile bool is_here_ = false;
  std::mutex mutex_;
  std::atomic<int> callers_{0};
};

struct Graph;
struct GraphExec;
struct PhysicalMemory;
struct SimArray;

struct Counters {
  std::uint64_t alloc_calls = 0;
  std::uint64_t free_calls = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t asked_bytes = 0;  // in the device memory that programs hold, to the byte
  std::uint64_t peak_asked_bytes = 0;
  std::uint64_t launches = 0;
  std::uint64_t operations = 0;
  std::uint64_t streams_created = 0;
  std::uint64_t context_records = 0;
  std::uint64_t context_waits = 0;
  // Virtual memory management, refused calls included.
  std::uint64_t reserve_calls = 0;
  std::uint64_t create_calls = 0;
  std::uint64_t map_calls = 0;
  std::uint64_t access_calls = 0;
  std::uint64_t access_chunks = 0;  // each costs, however many there are in a call
  std::uint64_t unmap_calls = 0;
  std::uint64_t unmap_chunks = 0;
  std::uint64_t release_calls = 0;
  std::uint64_t peak_host_chunk_bytes = 0;
};

struct Timeline {
  std::uint64_t submitted = 0;
  std::uint64_t completed = 0;
  bool in_use = false;
  bool library = false;       // of a stream that the preloaded library made for itself
  std::uint64_t context = 0;  // of its stream; of a green one, the context that it is a part of
  bool broken = false;        // its context failed: what is left of its work touches nothing
  // Positions, rising, of waits that the preloaded library put there and the host has not seen done.
  std::deque<std::uint64_t> library_waits;
};

struct State {
  State();

  StateMutex mutex;
  Counters counters;
  std::vector<Device> devices;
  std::vector<std::unique_ptr<Arena>> arenas;  // of the devices
  std::unique_ptr<Arena> reservations;         // addresses that programs reserve; made when first needed
  std::unique_ptr<Arena> host_chunks;          // host memory to be mapped; made when first needed
  Allocations allocations;
  Oracle oracle;
  AddedWaits added_waits;

  HandleTable<Context, CUcontext> contexts{0x6100'0000'0000};
  HandleTable<Stream, CUstream> streams{0x6200'0000'0000};
  HandleTable<Event, CUevent> events{0x6300'0000'0000};
  HandleTable<Module, CUmodule> modules{0x6400'0000'0000};
  HandleTable<Module, CUlibrary> libraries{0x6500'0000'0000};
  HandleTable<Function, CUfunction> functions{0x6600'0000'0000};
  HandleTable<Graph, CUgraph> graphs{0x6700'0000'0000};
  HandleTable<GraphExec, CUgraphExec> graph_execs{0x6800'0000'0000};
  HandleTable<MemPool, CUmemoryPool> pools{0x6900'0000'0000};
  HandleTable<SimArray, CUarray> arrays{0x6a00'0000'0000};
  HandleTable<SimArray, CUmipmappedArray> mipmaps{0x6b00'0000'0000};

  std::vector<Timeline> timelines;
  VectorClock host;  // what some thread has seen finished: precedes every later submission of any thread
  std::vector<std::shared_ptr<Stream>> busy;  // streams with queued operations
  std::uint64_t queued = 0;
  std::uint64_t progress = 0;  // submissions and steps: stands still when nothing moves
  std::vector<WaitingThread*> waiting;
  bool without_added_waits = false;    // only while the process ends: see hangs.cpp
  bool shared_with_processes = false;  // another process may write a word that is waited for
  std::uint64_t now_ns = 1000;         // simulated time: moves with the scheduler's steps
  std::mt19937_64 random;
  unsigned eagerness = 50;  // per cent chance that a call lets the device take a step, drawn from the seed
  std::uint64_t next_id = 1;

  Arena& arena(int device) { return *arenas[static_cast<std::size_t>(device)]; }
  Arena* arena_of(CUdeviceptr p);
  // Of a device, or of host memory (CU_DEVICE_CPU).
  Arena& chunk_arena(int device);
  Arena& reservation_arena();
  std::shared_ptr<Context> context_by_id(std::uint64_t id);
  std::uint64_t used_bytes() const;
  void note_usage();
  bool chance(unsigned percent) { return random() % 100 < percent; }
};

enum class Life { kBefore, kRunning, kForked };
extern std::atomic<Life> driver_life;

State& state();
bool start_driver();  // cuInit: false when a child of a forked driver asks

struct CurrentContext {
  CUcontext handle;
  std::uint64_t id;
};

constexpr int kContextDepth = 32;

struct ThreadState {
  CurrentContext stack[kContextDepth];
  int depth;
  std::uint64_t id;
  bool per_thread_default;  // inside a _ptsz/_ptds entry point
  bool in_callback;
  const char* call;  // the entry point it is in
  CUstreamCaptureMode capture_mode;
};

extern thread_local ThreadState thread_state;
std::uint64_t thread_id();

}  // namespace cupool::sim
