// Whose call it is. An observer in front of a preloaded library names every call of the application that the
// library may also make for itself; what arrives here without that name is the library's own. Thread-local,
// no lock. Without an observer all calls are the application's.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

namespace cupool::sim {

// What is known of a call: who made it, and inside which observed call of the application.
struct Origin {
  bool added = false;            // by the preloaded library, of its own accord
  const char* inside = nullptr;  // an ABI name; null: none that is observed
  std::uint64_t thread = 0;
};

std::string describe(const Origin& origin);

// The scope of an entry point that waits or makes something wait. `key` tells calls of one name apart (an
// event, a pointer): inside the application's own wait the library may make another of the same name.
class Asked {
 public:
  Asked(const char* name, std::uint64_t key);
  ~Asked();
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

 private:
  bool before_;
};

template <typename Handle>
std::uint64_t key_of(Handle handle) {
  return (std::uint64_t)handle;  // a pointer or a number
}

Origin present_origin();
// The device ran out of memory for a call made inside the present call of the application.
void note_refusal();

// What the observer said of this thread.
struct ObservedCall {
  const char* name;  // null: not inside a call
  std::uint64_t key;
  std::uint64_t freed_in;  // the context of the memory that a free is about to end; 0: none
  bool refused;            // the driver was out of memory during it
  bool added;              // what runs now is the library's own
  CUcontext current;       // when the call began
};
extern thread_local ObservedCall observed_call;

}  // namespace cupool::sim

extern "C" {
// The observer's side: around each call of the application. `name` must live as long as the process.
void cupoolSimCallBegin(const char* name, unsigned long long key);
void cupoolSimCallEnd(int result);
}
