// Threads that wait, and the verdict when nothing can go on any more: would the program have gone on without
// the waits that the preloaded library added? Both answers end the process, with an exit code each (87, 89)
// and the story on stderr. A thread that waits is in the list under the state mutex.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "sim/clock.hpp"
#include "sim/origin.hpp"

namespace cupool::sim {

struct WaitingThread {
  const VectorClock* target = nullptr;
  const char* call = "";
  Origin origin;
  ObservedCall observed{};  // the application's call that it waits in
  int tid = 0;
  bool longer_than_asked = false;  // the library's wait, and the application's call does not wait so long
  std::uint64_t since_ns = 0;
  std::uint64_t progress = 0;  // what the state had done when this thread last saw it move
  unsigned idle = 0;
};

// In the list for a scope.
class Waiting {
 public:
  explicit Waiting(const VectorClock& target);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // Nothing can run, as far as this thread sees: ends the process if no thread can change that, else gives
  // the others a moment.
  void for_others();

 private:
  WaitingThread self_;
  // Since the last round, if all others slept then: each with its count of switches.
  std::optional<std::map<int, std::string>> asleep_;
};

// The same for a thread that asks again and again whether something is done, and finds that nothing moves.
void asked_in_vain();

}  // namespace cupool::sim
