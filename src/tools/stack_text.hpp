// The call stacks of one trace as lines of text, one for each function, the innermost first. Each stack is
// looked up once.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace cupool::tools {

class CodeNames;
class TraceStacks;

class StackText {
 public:
  StackText(const TraceStacks& stacks, CodeNames& names) : stacks_(stacks), names_(names) {}
  // "function (file:line)"; empty: there is no such stack.
  const std::vector<std::string>& lines(uint64_t stack);

 private:
  const TraceStacks& stacks_;
  CodeNames& names_;
  std::unordered_map<uint64_t, std::vector<std::string>> known_;
};

}  // namespace cupool::tools
