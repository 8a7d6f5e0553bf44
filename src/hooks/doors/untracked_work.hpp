// Work that our hooks may not see. Fences do not depend on seeing every submission; lanes do, and are
// switched off here.
#pragma once

#include "cuda/real.hpp"

namespace cupool::hooks {

// Work may bypass our hooks. `reason` must live forever.
void note_possible_bypass(const char* reason);

// The program has a driver function whose name is in none of our tables. Logged once.
void note_unknown_entry_point(const char* name);
// The program has a private table that we do not know.
void note_unknown_table();

// A function that submits work in ways we do not track was called.
void note_untracked_work();

// Makes the note and returns the function to jump to; called by the trampolines of such functions.
using UntrackedTarget = void* (*)();
template <typename Self>
void* untracked_target() {
  note_untracked_work();
  cuda::find_driver(cuda::Search::kLoad);
  return Self::entry().address();
}

}  // namespace cupool::hooks
