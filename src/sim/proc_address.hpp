// The table behind cuGetProcAddress, made from names.def in proc_table.cpp. Without cuda.h, whose prototypes
// would clash with the bare declarations there.
#pragma once

namespace cupool::sim {

struct ProcRow {
  const char* name;
  int version;
  void* plain;
  void* per_thread;  // null where there is no such form
};

extern const ProcRow kProcRows[];
extern const int kProcRowCount;

}  // namespace cupool::sim
