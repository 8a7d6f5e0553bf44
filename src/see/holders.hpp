// Who asked for memory, as text: the call stacks of a trace as rows of frames, each frame once. A native
// function is its name, where one is known, else its library and the place in it. An allocation without a
// stack is held by the function of CUDA that was called. Texts are as the trace has them: whoever prints them
// makes them safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "see/model.hpp"
#include "tools/code_names.hpp"

namespace cupool::see {

struct Frame {
  std::string function;
  std::string library;   // the library's or the script's file without folders
  std::string file;      // of the source; empty: not known
  uint64_t line = 0;     // 0: not known
  bool is_named = true;  // not only a place in a library
  bool operator==(const Frame&) const = default;
  // "function (file:12)", or without what is not known.
  std::string text() const;
};

class Holders {
 public:
  Holders(const Model& model, tools::CodeNames& names);

  // By a number of Model::stack_numbers, and the call that is named where there is none.
  uint32_t of(uint32_t stack, uint16_t call) const {
    return stack == 0 ? of_call_[std::min<size_t>(call, of_call_.size() - 1)] : of_stack_[stack];
  }
  uint32_t of(const Life& life) const { return of(life.stack, life.call); }
  size_t size() const { return stacks_.size(); }
  // Numbers of frames, the outermost first.
  const std::vector<uint32_t>& frames(uint32_t holder) const { return stacks_[holder]; }
  const std::vector<Frame>& table() const { return table_; }
  // The frame that stands for a holder where there is room for one: the innermost line of the program's own
  // sources, else of others' sources, else the innermost function that does more than hand memory on.
  uint32_t face(uint32_t holder) const { return faces_[holder]; }
  std::string name(uint32_t holder) const { return table_[face(holder)].text(); }

 private:
  uint32_t number_of(Frame frame);
  uint32_t add(std::vector<uint32_t> frames);
  uint32_t find_face(const std::vector<uint32_t>& frames) const;

  std::vector<Frame> table_;
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<std::vector<uint32_t>> stacks_;
  std::vector<uint32_t> faces_;
  std::unordered_map<std::string, uint32_t> rows_;
  std::vector<uint32_t> of_stack_;
  std::vector<uint32_t> of_call_;
};

}  // namespace cupool::see
