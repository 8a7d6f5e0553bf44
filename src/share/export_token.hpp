// An export token: the handle of a block in mapped memory, for which the driver has none. It says whom to ask
// (the exporting process) and for what (a block, by its place, size and life), and carries a check that only
// the exporter can make: it gives nothing for an export token that it did not write. Eight bytes tell it from
// the driver's handles and name the format; the last eight are zero, as in the driver's. The rest is masked,
// so that no field can look like one of the driver's. Pure functions; no state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "share/handle.hpp"

namespace cupool::share {

// Known to the exporter alone.
struct Key {
  uint64_t low = 0;
  uint64_t high = 0;
};

struct ExportToken {
  uint64_t instance = 0;  // random; one for each process that exports
  uint32_t pid = 0;       // as the exporter sees it
  uint64_t start = 0;     // in the exporter
  uint64_t bytes = 0;
  uint64_t life = 0;  // of the block, unique in the exporter
  uint64_t check = 0;

  bool operator==(const ExportToken&) const = default;
};

uint64_t check_of(const ExportToken& token, const Key& key);

Handle to_handle(const ExportToken& token);
// False: it is not an export token of this version.
bool from_handle(const Handle& handle, ExportToken* out);

}  // namespace cupool::share
