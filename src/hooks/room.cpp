// See room.hpp.
#include "hooks/room.hpp"

#include "hooks/serving.hpp"

namespace cupool::hooks {

namespace {

// What lies on other devices does not help, and to release it would wait for the work there.
int device_of(driver::Context context) {
  int device = memory::kEveryDevice;
  if (context == nullptr) context = current_context();
  if (context == nullptr || memory.device_of(context, &device)) return device;
  return memory.driver().device(&device) == driver::kSuccess ? device : memory::kEveryDevice;
}

}  // namespace

bool make_room(int where, driver::Context context) {
  if (where == cuda::kNotRepeated || !is_serving() || memory.order().is_capturing()) return false;
  int device = where;
  if (where == cuda::kHere) device = device_of(context);
  if (where == cuda::kAnywhere) device = memory::kEveryDevice;
  return memory.make_room(device);
}

}  // namespace cupool::hooks
