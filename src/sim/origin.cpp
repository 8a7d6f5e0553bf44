// Calls told by the observer, and the credit that a free of the application gives: what the driver's free
// would have waited for may be waited for. The credit is written under the state mutex, the rest is the
// thread's own.
#include "sim/origin.hpp"

#include <cstring>

#include "sim/calls.hpp"
#include "sim/entry.hpp"
#include "sim/lives.hpp"

namespace cupool::sim {

thread_local ObservedCall observed_call{};

namespace {

bool is_application_call(const char* name, std::uint64_t key) {
  const ObservedCall& call = observed_call;
  return call.name != nullptr && call.key == key && std::strcmp(call.name, name) == 0;
}

}  // namespace

std::string describe(const Origin& origin) {
  std::string text = origin.added ? "by the preloaded library" : "by the application";
  if (origin.added && origin.inside != nullptr)
    text += std::string(" inside the application's ") + origin.inside;
  return text + ", thread " + std::to_string(origin.thread);
}

Asked::Asked(const char* name, std::uint64_t key) : before_(observed_call.added) {
  observed_call.added = driver_life.load() == Life::kRunning && observed() && !is_application_call(name, key);
}

Asked::~Asked() { observed_call.added = before_; }

Origin present_origin() { return Origin{observed_call.added, observed_call.name, thread_id()}; }

void note_refusal() { observed_call.refused = true; }

}  // namespace cupool::sim

using namespace cupool::sim;

void cupoolSimCallBegin(const char* name, unsigned long long key) {
  const int depth = thread_state.depth;
  const CUcontext current = depth > 0 ? thread_state.stack[depth - 1].handle : nullptr;
  observed_call = ObservedCall{name, key, 0, false, false, current};
  publish_call(observed_call);
}

void cupoolSimCallEnd(int result) {
  const ObservedCall call = observed_call;
  observed_call = ObservedCall{};
  publish_call(observed_call);
  if (driver_life.load() != Life::kRunning || call.name == nullptr) return;
  const bool host = result == CUDA_SUCCESS && std::strcmp(call.name, "cuMemFreeHost") == 0;
  if (call.freed_in == 0 && !host) return;
  const Inside lock;
  ContextPtr context;
  if (host) {
    if (current_context(context) != CUDA_SUCCESS) return;
  } else {
    state().added_waits.free_ends(call.freed_in);
    context = state().context_by_id(call.freed_in);
  }
  if (context != nullptr && result == CUDA_SUCCESS) {
    state().added_waits.freed(context->whole_id(), context_target(*context), thread_id());
  }
}
