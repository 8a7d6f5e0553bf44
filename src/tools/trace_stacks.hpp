// The call stacks of a trace, and what lay where when they were taken: gathered by the reader from its blocks
// while it reads, asked by number. Names of native functions are not in it: they are in the files that its
// modules name. Trusts nothing, as the reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cupool::tools {

// A library or the program, as it was loaded.
struct TraceModule {
  uint64_t id = 0;
  std::string path;
  std::string build_id;  // as hexadecimal digits; empty: it has none
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t bias = 0;             // an address less this is the address in its file
  uint64_t map = 0;              // the first map that has it
  uint64_t gone = ~uint64_t{0};  // the first one after it
};

// A place in the source of an interpreted program.
struct TracePlace {
  std::string_view function;
  std::string_view file;
  uint64_t line = 0;  // 0: not known
};

struct TraceFrame {
  const TracePlace* place = nullptr;    // of an interpreted one; null: a native one, and the rest says where
  uint64_t address = 0;                 // of the call: the byte before the return address
  const TraceModule* module = nullptr;  // null: not known
  uint64_t offset = 0;                  // of the call in the module's file (its virtual address there)
};

class TraceStacks {
 public:
  TraceStacks() = default;
  TraceStacks(const TraceStacks&) = delete;
  TraceStacks& operator=(const TraceStacks&) = delete;

  // The content of a block; false: it is not what the head says.
  bool read_stacks(const uint8_t* content, size_t bytes, uint32_t count);
  bool read_modules(const uint8_t* content, size_t bytes, uint32_t count);

  // Innermost first; empty: there is no stack of that number. What it points to stays for as long as this.
  std::vector<TraceFrame> frames(uint64_t stack) const;
  bool has(uint64_t stack) const { return stacks_.count(stack) != 0; }
  size_t count() const { return stacks_.size(); }
  const std::map<uint64_t, TraceModule>& modules() const { return modules_; }

 private:
  struct Stack {
    uint64_t map = 0;
    std::vector<uint64_t> frames;  // trace::kIsPlace, or a return address
  };
  const TraceModule* module_at(uint64_t address, uint64_t map) const;

  std::unordered_map<uint64_t, std::string> texts_;
  std::unordered_map<uint64_t, TracePlace> places_;
  std::unordered_map<uint64_t, Stack> stacks_;
  std::map<uint64_t, TraceModule> modules_;
  // By their begins; of each map that was asked for, made then.
  mutable std::unordered_map<uint64_t, std::map<uint64_t, const TraceModule*>> maps_;
};

}  // namespace cupool::tools
