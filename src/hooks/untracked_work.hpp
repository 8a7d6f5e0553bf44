// When a program may do work that our notes do not see. Fences never depended on notes; lanes do, and stop
// here.
#pragma once

#include "cuda/real.hpp"

namespace cupool::hooks {

// Something may be done past our hooks. `reason` must live forever.
void doubt(const char* reason);

// The program has a function of the driver whose name stands in no list of ours. Said once.
void note_unknown_entry_point(const char* name);
// Or a private table that we do not know.
void note_unknown_table();

// A function was called that submits work in ways we do not follow.
void note_untracked_work();

// The function to jump to after the note; called by the trampolines of such functions.
using DoubtTarget = void* (*)();
template <typename Self>
void* doubt_target() {
  note_untracked_work();
  cuda::find_driver(cuda::Search::kLoad);
  return Self::entry().address();
}

}  // namespace cupool::hooks
