// What the simulated device does not do: every name of names.def exists, weakly, and says so. An entry point
// written elsewhere in this library takes the place of its stub at link time. cuda.h must not be included
// here: the stubs take any arguments.
#define SIM_STUB(symbol) \
  extern "C" __attribute__((weak)) int symbol() { return 801; /* CUDA_ERROR_NOT_SUPPORTED */ }

#define SIM_NAME(name, symbol, version) SIM_STUB(symbol)
#define SIM_NAME_PT(name, symbol, version, per_thread) SIM_STUB(symbol) SIM_STUB(per_thread)
#define SIM_ALIAS(name, symbol, version)
#include "sim/names.def"
