// Call stacks for the listeners that note them: begun once, as the options say, by the first that wants them.
#pragma once

namespace cupool::hooks::observe {

// May load libraries: for the start alone.
void start_stacks();

}  // namespace cupool::hooks::observe
