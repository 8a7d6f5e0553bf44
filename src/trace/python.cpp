// See python.hpp. Reads the interpreter's own structures by what python_layout.hpp knows of them.
#include "trace/python.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>

#include "base/preserve_errno.hpp"
#include "trace/python_layout.hpp"
#include "trace/records.hpp"
#include "trace/stacks.hpp"

namespace cupool::trace {
namespace {

struct Interpreter {
  PythonLayout layout;
  void* (*own_state)() = nullptr;
  uintptr_t code_type = 0;
  uintptr_t text_type = 0;
  uintptr_t loop_begin = 0;
  uintptr_t loop_end = 0;
};
constinit Interpreter interpreter;  // complete before `is_known`
constinit std::atomic<bool> is_known{false};
constinit std::atomic<bool> is_given_up{false};
constinit WordTable known_places{17};  // by the addresses of the code: the place, as a note

// ---- Reading.

template <typename T>
T load(uintptr_t at) {
  T value;
  memcpy(&value, reinterpret_cast<const void*>(at), sizeof value);
  return value;
}
uintptr_t word(uintptr_t at) { return load<uintptr_t>(at); }

bool copy(uintptr_t from, void* to, size_t bytes) {
  iovec local = {to, bytes};
  iovec remote = {reinterpret_cast<void*>(from), bytes};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

// A text of Python's as UTF-8; what does not fit is cut off.
struct Name {
  char bytes[1024];
  size_t size = 0;
  void put(uint32_t character) {
    if (size + 4 > sizeof bytes) return;
    const auto add = [&](uint32_t byte) { bytes[size++] = static_cast<char>(byte); };
    if (character < 0x80) {
      add(character);
    } else if (character < 0x800) {
      add(0xC0 | character >> 6);
      add(0x80 | (character & 0x3F));
    } else if (character < 0x10000) {
      add(0xE0 | character >> 12);
      add(0x80 | (character >> 6 & 0x3F));
      add(0x80 | (character & 0x3F));
    } else {
      add(0xF0 | character >> 18);
      add(0x80 | (character >> 12 & 0x3F));
      add(0x80 | (character >> 6 & 0x3F));
      add(0x80 | (character & 0x3F));
    }
  }
};

bool read_name(uintptr_t object, Name* out) {
  const PythonLayout& layout = interpreter.layout;
  uint8_t head[40];
  if (object == 0 || !copy(object, head, sizeof head)) return false;
  uintptr_t type;
  uint64_t length;
  uint32_t state;
  memcpy(&type, head + PythonLayout::kObjectType, sizeof type);
  memcpy(&length, head + PythonLayout::kTextLength, sizeof length);
  memcpy(&state, head + PythonLayout::kTextState, sizeof state);
  if (type != interpreter.text_type) return false;
  const size_t kind = state >> 2 & 7;
  const bool is_compact = (state >> 5 & 1) != 0;
  const bool is_ascii = (state >> 6 & 1) != 0;
  if (!is_compact || (kind != 1 && kind != 2 && kind != 4)) return false;
  uint8_t data[sizeof out->bytes];
  const size_t characters = std::min<uint64_t>(length, sizeof data / kind);
  if (!copy(object + (is_ascii ? layout.text_ascii : layout.text_compact), data, characters * kind))
    return false;
  for (size_t i = 0; i < characters; ++i) {
    uint32_t character = 0;
    memcpy(&character, data + i * kind, kind);
    out->put(character);
  }
  return true;
}

// ---- Lines.

// The table of a code's lines, read as it is needed.
class Lines {
 public:
  explicit Lines(uintptr_t bytes) {
    uint64_t size = 0;
    if (!copy(bytes + PythonLayout::kBytesSize, &size, sizeof size)) return;
    at_ = bytes + PythonLayout::kBytesData;
    end_ = at_ + size;
  }
  bool is_over() const { return at_ >= end_; }
  uint8_t next() {
    if (is_over()) return 0;
    if (used_ == had_) {
      had_ = std::min<size_t>(sizeof room_, end_ - at_);
      used_ = 0;
      if (!copy(at_, room_, had_)) {
        end_ = at_;
        return 0;
      }
    }
    ++at_;
    return room_[used_++];
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 36; shift += 6) {
      const uint8_t byte = next();
      value |= static_cast<uint64_t>(byte & 63) << shift;
      if ((byte & 64) == 0) break;
    }
    return value;
  }
  int64_t signed_varint() {
    const uint64_t value = varint();
    const auto half = static_cast<int64_t>(value >> 1);
    return (value & 1) != 0 ? -half : half;
  }

 private:
  uintptr_t at_ = 0;
  uintptr_t end_ = 0;
  uint8_t room_[512];
  size_t used_ = 0;
  size_t had_ = 0;
};

// 0: none. `at`: bytes from the first instruction.
uint64_t line_39(Lines lines, int64_t line, int64_t at) {
  int64_t reached = 0;
  while (!lines.is_over()) {
    reached += lines.next();
    if (reached > at) break;
    line += static_cast<int8_t>(lines.next());
  }
  return static_cast<uint64_t>(line);
}

uint64_t line_310(Lines lines, int64_t line, int64_t at) {
  int64_t reached = 0;
  while (!lines.is_over()) {
    reached += lines.next();
    const auto step = static_cast<int8_t>(lines.next());
    if (step != -128) line += step;
    if (reached > at) return step == -128 ? 0 : static_cast<uint64_t>(line);
  }
  return 0;
}

uint64_t line_311(Lines lines, int64_t line, int64_t at) {
  enum Code : unsigned { kOneLine = 10, kNoColumns = 13, kLong = 14, kNowhere = 15 };
  int64_t reached = 0;
  while (!lines.is_over()) {
    const uint8_t first = lines.next();
    const unsigned code = first >> 3 & 15;
    if (code == kLong) {
      line += lines.signed_varint();
      for (int i = 0; i < 3; ++i) lines.varint();
    } else if (code == kNoColumns) {
      line += lines.signed_varint();
    } else if (code >= kOneLine && code < kNoColumns) {
      line += code - kOneLine;
      lines.next();
      lines.next();
    } else if (code < kOneLine) {
      lines.next();
    }
    reached += 2 * ((first & 7) + 1);
    if (reached > at) return code == kNowhere ? 0 : static_cast<uint64_t>(line);
  }
  return 0;
}

// ---- Places.

uint32_t add_text(const Name& name) {
  uint64_t words[1 + sizeof name.bytes / 8 + 1] = {name.size};
  memcpy(words + 1, name.bytes, name.size);
  return stack_tables.texts.find_or_add({words, 1 + (name.size + 7) / 8});
}

uint32_t look_up(uintptr_t code, int64_t at) {
  const PythonLayout& layout = interpreter.layout;
  uint8_t object[256];
  const size_t bytes = layout.code_lines + sizeof(uintptr_t);
  if (bytes > sizeof object) return 0;
  if (!copy(code, object, bytes)) {
    // The kernel may forbid a process to read itself this way: then there are no frames of Python.
    is_known.store(false, std::memory_order_relaxed);
    is_given_up.store(true, std::memory_order_relaxed);
    return 0;
  }
  const auto field = [&](size_t offset) {
    uintptr_t value;
    memcpy(&value, object + offset, sizeof value);
    return value;
  };
  int32_t first_line;
  memcpy(&first_line, object + layout.code_first_line, sizeof first_line);
  Name function;
  Name file;
  if (!read_name(field(layout.code_name), &function) || !read_name(field(layout.code_file), &file)) return 0;
  const Lines lines(field(layout.code_lines));
  uint64_t line = 0;
  switch (layout.form) {
    case PythonForm::k39:
      line = line_39(lines, first_line, at);
      break;
    case PythonForm::k310:
      line = line_310(lines, first_line, at);
      break;
    default:
      line = line_311(lines, first_line, at);
  }
  const uint64_t words[] = {add_text(function), add_text(file), line};
  return stack_tables.places.find_or_add(words);
}

// The place of one frame; 0: it has none.
uint32_t place_of(uintptr_t frame) {
  const PythonLayout& layout = interpreter.layout;
  const uintptr_t code = word(frame + layout.frame_code) & ~uintptr_t{7};
  if (code == 0 || word(code + PythonLayout::kObjectType) != interpreter.code_type) return 0;
  int64_t at;
  if (layout.form == PythonForm::k39) {
    at = load<int32_t>(frame + layout.frame_at);
  } else if (layout.form == PythonForm::k310) {
    at = int64_t{2} * load<int32_t>(frame + layout.frame_at);
  } else {
    at = static_cast<int64_t>(word(frame + layout.frame_at) - code - layout.code_code);
  }
  const uint64_t key[] = {code,
                          static_cast<uint64_t>(at),
                          word(code + layout.code_file),
                          word(code + layout.code_name),
                          word(code + layout.code_lines),
                          load<uint32_t>(code + layout.code_first_line)};
  if (const uint32_t known = known_places.find(key)) return known_places.row(known).note;
  const uint32_t place = look_up(code, at);
  if (place != 0) known_places.find_or_add(key, place);
  return place;
}

// The thread's frames, the innermost first.
class Frames {
 public:
  explicit Frames(size_t most) : left_(most) {
    const auto state = reinterpret_cast<uintptr_t>(interpreter.own_state());
    if (state == 0) return;
    const PythonLayout& layout = interpreter.layout;
    frame_ = word(state + layout.thread_frame);
    if (layout.indirect_frame != PythonLayout::kNone && frame_ != 0)
      frame_ = word(frame_ + layout.indirect_frame);
  }
  bool has_more() const { return frame_ != 0 && left_ != 0 && steps_ < kMostSteps; }
  // Those of one run of the interpreter's loop.
  template <typename Take>
  void one_run(Take&& take) {
    const PythonLayout& layout = interpreter.layout;
    while (has_more()) {
      ++steps_;
      const uintptr_t frame = frame_;
      frame_ = word(frame + layout.frame_previous);
      // From 3.12 on a run begins with a frame of the interpreter itself.
      constexpr uint8_t kInterpreters = 3;
      if (layout.form == PythonForm::k312 && load<uint8_t>(frame + layout.frame_edge) >= kInterpreters)
        return;
      if (const uint32_t place = place_of(frame)) {
        take(place);
        --left_;
      }
      if (layout.form == PythonForm::k39 || layout.form == PythonForm::k310) return;
      if (layout.form == PythonForm::k311 && load<uint8_t>(frame + layout.frame_edge) != 0) return;
    }
  }

 private:
  static constexpr size_t kMostSteps = 4096;
  uintptr_t frame_ = 0;
  size_t left_;
  size_t steps_ = 0;
};

}  // namespace

void look_for_python() {
  if (is_known.load(std::memory_order_acquire) || is_given_up.load(std::memory_order_relaxed)) return;
  void* const loop = dlsym(RTLD_DEFAULT, "_PyEval_EvalFrameDefault");
  if (loop == nullptr) return;
  Interpreter found{};
  Dl_info info;
  const ElfW(Sym)* symbol = nullptr;
  const auto address = [](const char* name) {
    return reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, name));
  };
  found.own_state = reinterpret_cast<void* (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  found.code_type = address("PyCode_Type");
  found.text_type = address("PyUnicode_Type");
  if (!take_python_layout(&found.layout) || found.own_state == nullptr || found.code_type == 0 ||
      found.text_type == 0 ||
      dladdr1(loop, &info, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)), RTLD_DL_SYMENT) == 0 ||
      symbol == nullptr) {
    is_given_up.store(true, std::memory_order_relaxed);
    return;
  }
  found.loop_begin = reinterpret_cast<uintptr_t>(loop);
  found.loop_end = found.loop_begin + symbol->st_size;
  // It must not be unloaded any more: its functions and types are used from now on.
  if (info.dli_fname != nullptr) dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  interpreter = found;
  is_known.store(true, std::memory_order_release);
}

size_t merge_python(std::span<void* const> native, size_t most, uint64_t* out, size_t room) {
  size_t used = 0;
  const auto put = [&](uint64_t frame) {
    if (used < room) out[used++] = frame;
  };
  const auto put_place = [&](uint32_t place) { put(place | kIsPlace); };
  if (!is_known.load(std::memory_order_acquire)) {
    for (void* const frame : native) put(reinterpret_cast<uint64_t>(frame) & ~kIsPlace);
    return used;
  }
  const PreserveErrno preserve;
  Frames frames(most);
  for (void* const frame : native) {
    const auto address = reinterpret_cast<uintptr_t>(frame);
    if (address > interpreter.loop_begin && address <= interpreter.loop_end && frames.has_more()) {
      frames.one_run(put_place);
    } else {
      put(address & ~kIsPlace);
    }
  }
  while (frames.has_more()) frames.one_run(put_place);
  return used;
}

}  // namespace cupool::trace
