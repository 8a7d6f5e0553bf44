// The recorder of a trace (CUPOOL_TRACE): every thread writes its events into a ring of its own, without a
// lock; a gatherer turns them into blocks and appends those to the file, or keeps the last of them in memory
// (CUPOOL_TRACE_KEEP). The file thread gathers many times a second; a thread whose ring is full, and the end
// of the process, gather too. One lock, of the gatherer. Calls no driver. Whatever goes wrong with the file
// ends the trace with one line; the program does not notice. Off, nothing here is called: whoever has
// something to tell asks is_on() first, on a path that is slow anyway.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/clock.hpp"
#include "trace/events.hpp"
#include "trace/live_set.hpp"

namespace cupool::trace {

namespace detail {
[[gnu::visibility("hidden")]] extern constinit std::atomic<bool> on;
// Where an event is told from. kEntry: no lock of ours is held, and a thread whose ring is full makes room
// itself. kInside: under any lock; what finds no room is lost, and counted.
enum class From { kEntry, kInside };
[[gnu::cold]] void record(Event event, uint64_t time, const uint64_t* words, size_t count, From from);
}  // namespace detail

inline bool is_on() { return detail::on.load(std::memory_order_relaxed); }

// From an entry point. `time`: of a call, when it began, if the event is to stand there.
template <typename Told>
void record(const Told& what, uint64_t time = now_ns()) {
  static_assert(sizeof(Told) % 8 == 0 && std::is_trivially_copyable_v<Told>);
  detail::record(Told::kEvent, time, reinterpret_cast<const uint64_t*>(&what), sizeof(Told) / 8,
                 detail::From::kEntry);
}
// From within the pool, if the trace is on.
template <typename Told>
void record_inside(const Told& what) {
  if (!is_on()) [[likely]]
    return;
  detail::record(Told::kEvent, now_ns(), reinterpret_cast<const uint64_t*>(&what), sizeof(Told) / 8,
                 detail::From::kInside);
}

// Whose trace it is. Texts and names stay valid.
struct About {
  uint64_t pid = 0;
  const char* program = "";
  const char* host = "";
  const char* rank = "";
  const char* version = "";
  const char* (*call_name)(size_t number) = nullptr;
  size_t calls = 0;
};

struct Settings {
  // The file, which exists and is empty.
  const char* path = "";
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t most_bytes = ~uint64_t{0};
  uint64_t kept_bytes = 0;             // not 0: no file, the last so many bytes stay in memory
  uint64_t live_set_every = 16 << 20;  // bytes of a file
  bool has_output = true;              // no: only what is live is known
  bool remembers_frees = false;        // for find_block()
  bool stays = false;                  // what is live is known even after the file has ended
};

// False: the host has no memory for what is to be kept. pre: the trace is off, or has no output: then what is
// live is known, and the new one begins with it.
bool begin(const About& about, const Settings& settings);

// Ends it, as it was begun, and says so in it; a later begin() begins another one. False: somebody gathers.
bool end();

// How to let the file thread gather at once; null: there is none.
void set_waker(void (*wake)());

// The file thread, many times a second. `kept`: its descriptor, -1 at first.
void gather_now(int* kept);
inline constexpr uint64_t kBetweenGatherings = 30'000'000;  // nanoseconds

// The process ends: gathers what is left. Async-signal-safe.
void finish();

// The program has forbidden itself system calls: the trace ends without one.
void abandon();

// What is kept in memory, the head of a file first: calls put(data, bytes, argument) for each piece. False:
// nothing is kept, or another thread gathers. Async-signal-safe.
using Put = void (*)(const void* data, size_t bytes, void* argument);
bool visit_kept(Put put, void* argument);
bool is_kept();
// Whether what was gathered says that this is live.
bool holds(uint64_t address, uint8_t kind);
// Of the file that is written, or was.
const char* path();
// Whether what is recorded goes to a file.
bool is_written();
// The block of the pool at or around that address, live or freed lately. False: none, or nobody knows.
bool find_block(uint64_t address, LiveSet::Item* out);

// What the program holds: gathers, then calls see(item, argument) for each block. False: it is not known, or
// another thread gathers. Not from a signal handler.
using See = void (*)(const LiveSet::Item& item, void* argument);
bool visit_live(See see, void* argument);

}  // namespace cupool::trace
