// Driver functions that a program links to and that we do not know: the dynamic linker binds them directly to
// libcuda. The names that libcuda exports and our tables lack are collected once; if there are any, the
// imports of every object are checked against them. Under its own lock; only reads what the loader has
// mapped.
#pragma once

namespace cupool::hooks {

// Checks the objects that were not checked yet. pre: the driver was found.
void look_for_unknown_names();

}  // namespace cupool::hooks
