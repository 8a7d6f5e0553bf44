// The process's observer, with the listeners of the table. A test may name a table of its own.
#include "hooks/observe/observer.hpp"

#ifndef CUPOOL_LISTENERS
#define CUPOOL_LISTENERS "hooks/observe/listeners.def"
#endif

namespace cupool::hooks {

namespace observe {
#define CUPOOL_LISTENER(name) extern const Listener name##_listener;
#include CUPOOL_LISTENERS

namespace {
constexpr const Listener* kListeners[] = {
#define CUPOOL_LISTENER(name) &name##_listener,
#include CUPOOL_LISTENERS
};
}  // namespace
}  // namespace observe

constinit observe::Observer detail::observer{observe::kListeners, &set_slow};

}  // namespace cupool::hooks
