// See system_library.hpp.
#include "base/system_library.hpp"

#include <dlfcn.h>

#include "base/format.hpp"

namespace cupool {
namespace {

#if defined(__x86_64__)
#define CUPOOL_TRIPLET "x86_64-linux-gnu"
#else
#define CUPOOL_TRIPLET "aarch64-linux-gnu"
#endif
constexpr const char* kFolders[] = {"/usr/lib/" CUPOOL_TRIPLET, "/usr/lib64", "/lib/" CUPOOL_TRIPLET,
                                    "/usr/lib"};

}  // namespace

void* open_system_library(const char* name) {
  for (const char* const folder : kFolders) {
    char path[96];
    format_into(path, "{}/{}", folder, name);
    if (void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

}  // namespace cupool
