// Which library is calling: libcuda itself and UCX's libucm must get the driver's own functions, or calls
// would recurse for ever.
#pragma once

namespace cupool::hooks {

// Whether this return address lies in one of them.
bool is_below_us(const void* return_address);

}  // namespace cupool::hooks
