// The Api of a victim that links libcuda: each member is the address the dynamic linker bound.
#pragma once

#include "api.hpp"

namespace victim {

inline Api linked_api() {
  Api api;
#define VICTIM_LINK(symbol, name, version) api.symbol = &::symbol;
  VICTIM_FUNCTIONS(VICTIM_LINK)
#undef VICTIM_LINK
  return api;
}

}  // namespace victim
