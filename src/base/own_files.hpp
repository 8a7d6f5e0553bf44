// A table of descriptors for a thread of ours alone: what it opens there takes no number that the program
// could be given, is not closed when the program closes everything, and is in no fork child. The program's
// descriptors are not in it: a copy would keep its pipes and sockets open. Calls of the driver do not belong
// on such a thread: the driver has descriptors of the program's table. No state.
#pragma once

namespace cupool {

// False: the system refuses, and the thread must not open anything.
bool take_own_files();

}  // namespace cupool
