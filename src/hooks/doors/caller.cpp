// See caller.hpp. dladdr only reads the loader's list; it leaves dlerror alone.
#include "hooks/doors/caller.hpp"

#include <dlfcn.h>

#include <string_view>

namespace cupool::hooks {

bool is_below_us(const void* return_address) {
  Dl_info info;
  if (dladdr(return_address, &info) == 0 || info.dli_fname == nullptr) return false;
  std::string_view name(info.dli_fname);
  name.remove_prefix(name.rfind('/') + 1);
  return name.starts_with("libcuda.so") || name.starts_with("libucm");
}

}  // namespace cupool::hooks
