// The kinds of hooks (kinds.def) and what each row says of them, at compile time. Needs no CUDA header.
#pragma once

#include <cstddef>

namespace cupool::cuda {

enum class Kind {
#define CUPOOL_KIND(kind, way, stream, is_seen) kind,
#include "cuda/kinds.def"
};

enum class Way { kSubmit, kSubmitValueWait, kSubmitGraph, kNode, kRepeat };
enum class StreamIn { kAtPlace, kInConfig, kInList, kDefault, kNone };

struct KindRow {
  Way way;
  StreamIn stream;
  bool is_seen;
};

constexpr KindRow row_of(Kind kind) {
  constexpr KindRow kRows[] = {
#define CUPOOL_KIND(kind, way, stream, is_seen) {Way::way, StreamIn::stream, is_seen},
#include "cuda/kinds.def"
  };
  return kRows[static_cast<size_t>(kind)];
}

}  // namespace cupool::cuda
