// Driver functions that a program is linked to and that we do not know: the dynamic linker binds them past
// us. The names that libcuda exports and our tables lack are found once; where there are any, the imports of
// every object are held against them. Under a lock of its own; only reads what the loader has mapped.
#pragma once

namespace cupool::hooks {

// Looks at the objects that were not looked at yet. pre: the driver was found.
void look_for_unknown_names();

}  // namespace cupool::hooks
