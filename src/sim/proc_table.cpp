// names.def as addresses. cuda.h must not be included here: the symbols are declared without their arguments,
// so that one list serves every signature.
#include "sim/proc_address.hpp"

#define SIM_NAME(name, symbol, version) extern "C" int symbol();
#define SIM_NAME_PT(name, symbol, version, per_thread) \
  extern "C" int symbol();                             \
  extern "C" int per_thread();
#define SIM_ALIAS(name, symbol, version)
#include "sim/names.def"
#undef SIM_NAME
#undef SIM_NAME_PT
#undef SIM_ALIAS

namespace cupool::sim {

#define SIM_NAME(name, symbol, version) {#name, version, reinterpret_cast<void*>(&symbol), nullptr},
#define SIM_NAME_PT(name, symbol, version, per_thread) \
  {#name, version, reinterpret_cast<void*>(&symbol), reinterpret_cast<void*>(&per_thread)},
#define SIM_ALIAS(name, symbol, version) {#name, version, reinterpret_cast<void*>(&symbol), nullptr},
const ProcRow kProcRows[] = {
#include "sim/names.def"
};
const int kProcRowCount = sizeof kProcRows / sizeof kProcRows[0];

}  // namespace cupool::sim
