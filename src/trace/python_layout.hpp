// Where an interpreter of Python keeps what a stack needs, and in which form. From 3.13 on it says so itself
// (_Py_DebugOffsets, the beginning of _PyRuntime); for 3.9 to 3.12 there is a table.
#pragma once

#include <cstddef>

namespace cupool::trace {

// How a version keeps its lines, and where one run of its loop ends.
enum class PythonForm { k39, k310, k311, k312 };

struct PythonLayout {
  static constexpr size_t kNone = ~size_t{0};
  // The same in all of them.
  static constexpr size_t kObjectType = 8;
  static constexpr size_t kTextLength = 16;
  static constexpr size_t kTextState = 32;
  static constexpr size_t kBytesSize = 16;
  static constexpr size_t kBytesData = 32;

  unsigned version = 0;
  PythonForm form = PythonForm::k39;
  size_t thread_frame = 0;    // in the thread's state: its frame, or a structure that has it
  size_t indirect_frame = 0;  // in that structure; kNone: there is none
  size_t frame_code = 0;
  size_t frame_at = 0;  // where it is in the code
  size_t frame_previous = 0;
  size_t frame_edge = 0;  // 3.11: whether the loop was entered with it; 3.12: whose it is
  size_t code_file = 0;
  size_t code_name = 0;
  size_t code_first_line = 0;
  size_t code_lines = 0;
  size_t code_code = 0;     // the instructions
  size_t text_ascii = 0;    // of a text: the characters, if they are ASCII,
  size_t text_compact = 0;  // or not
};

// Of the interpreter in this process. False: it is not known, or there is none.
bool take_python_layout(PythonLayout* out);

}  // namespace cupool::trace
