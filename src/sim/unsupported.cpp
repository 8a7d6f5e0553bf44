// What the simulated device does not do: every name of names.def exists, weakly, and says so, unless a fault
// is injected. An entry point written elsewhere in this library takes the place of its stub at link time.
// cuda.h must not be included here: the stubs take any arguments.
#include "sim/stub.hpp"

#define SIM_STUB(symbol) \
  extern "C" __attribute__((weak)) int symbol() { return cupool::sim::answer_of_stub(#symbol); }

#define SIM_NAME(name, symbol, version) SIM_STUB(symbol)
#define SIM_NAME_PT(name, symbol, version, per_thread) SIM_STUB(symbol) SIM_STUB(per_thread)
#define SIM_ALIAS(name, symbol, version)
#include "sim/names.def"
