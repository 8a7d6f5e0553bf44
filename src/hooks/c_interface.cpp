// The C interface of include/cupool/cupool.h, exported under its own names.
#include "cupool/cupool.h"

#include "base/version.hpp"
#include "config/options.hpp"

const char* cupool_name(void) { return "cupool"; }

const char* cupool_version(void) { return cupool::kVersion; }

int cupool_is_enabled(void) { return cupool::config::options().backend != cupool::config::Backend::kOff ? 1 : 0; }
