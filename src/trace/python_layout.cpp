// See python_layout.hpp.
#include "trace/python_layout.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

namespace cupool::trace {

namespace {

constexpr size_t kNone = PythonLayout::kNone;
constexpr PythonLayout kLayouts[] = {
    {0x309, PythonForm::k39, 24, kNone, 32, 104, 24, kNone, 104, 112, 40, 120, 0, 48, 72},
    {0x30A, PythonForm::k310, 24, kNone, 32, 96, 24, kNone, 104, 112, 40, 120, 0, 48, 72},
    {0x30B, PythonForm::k311, 56, 8, 32, 56, 48, 68, 112, 128, 72, 136, 184, 48, 72},
    {0x30C, PythonForm::k312, 56, 0, 0, 56, 8, 70, 112, 128, 68, 136, 192, 40, 56},
};

// Words of _Py_DebugOffsets in 3.13.
enum DebugWord : size_t {
  kCookie = 0,
  kVersion = 1,
  kThreadFrame = 23,
  kFramePrevious = 29,
  kFrameExecutable = 30,
  kFrameInstruction = 31,
  kFrameOwner = 33,
  kCodeFile = 35,
  kCodeName = 37,
  kCodeLines = 38,
  kCodeFirstLine = 39,
  kCodeCode = 43,
  kTypeOfObject = 45,
  kSizeOfBytes = 65,
  kDataOfBytes = 66,
  kStateOfText = 68,
  kLengthOfText = 69,
  kAsciiSize = 70,
  kDebugWords = 71,
};

bool take_debug_offsets(const void* runtime, PythonLayout* out) {
  uint64_t words[kDebugWords];
  memcpy(words, runtime, sizeof words);
  if (memcmp(words, "xdebugpy", 8) != 0 || words[kVersion] >> 16 != 0x30D) return false;
  if (words[kTypeOfObject] > 64) return false;
  if (words[kSizeOfBytes] != PythonLayout::kBytesSize || words[kDataOfBytes] != PythonLayout::kBytesData ||
      words[kStateOfText] != PythonLayout::kTextState || words[kLengthOfText] != PythonLayout::kTextLength)
    return false;
  *out = {0x30D,
          PythonForm::k312,
          words[kThreadFrame],
          PythonLayout::kNone,
          words[kFrameExecutable],
          words[kFrameInstruction],
          words[kFramePrevious],
          words[kFrameOwner],
          words[kCodeFile],
          words[kCodeName],
          words[kCodeFirstLine],
          words[kCodeLines],
          words[kCodeCode],
          words[kAsciiSize],
          words[kAsciiSize] + 16};
  return true;
}

// 3.11 and later say it; the two before are told apart by what they have.
unsigned version_of() {
  if (const void* const version = dlsym(RTLD_DEFAULT, "Py_Version"))
    return static_cast<unsigned>(*static_cast<const unsigned long*>(version) >> 16);
  if (dlsym(RTLD_DEFAULT, "Py_NewRef") != nullptr) return 0x30A;
  return dlsym(RTLD_DEFAULT, "PyFrame_GetBack") != nullptr ? 0x309 : 0;
}

}  // namespace

bool take_python_layout(PythonLayout* out) {
  const unsigned version = version_of();
  for (const PythonLayout& one : kLayouts) {
    if (one.version != version) continue;
    *out = one;
    return true;
  }
  const void* const runtime = dlsym(RTLD_DEFAULT, "_PyRuntime");
  return runtime != nullptr && take_debug_offsets(runtime, out);
}

}  // namespace cupool::trace
