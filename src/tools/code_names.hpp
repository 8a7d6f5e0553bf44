// Names for addresses of native code: function, file and line, with the functions that were inlined there. In
// the files that a trace names or, on another machine or for stripped programs, in the folders that the user
// names; only in files with the build-id of what ran. Lines need elfutils' libdw, which is opened at the
// first one; without it, there are the names that the linker knows. Each address is looked up once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace cupool::tools {

struct TraceModule;

struct CodeName {
  std::string function;  // demangled; empty: not known
  std::string file;      // of the source; empty: not known
  int line = 0;
};

class CodeNames {
 public:
  // `folders`: where debug information is looked for first.
  explicit CodeNames(std::vector<std::string> folders);
  ~CodeNames();
  CodeNames(const CodeNames&) = delete;
  CodeNames& operator=(const CodeNames&) = delete;

  // What runs at an address of the module's file, the innermost function first; never empty. The answer stays
  // for as long as this.
  const std::vector<CodeName>& at(const TraceModule& module, uint64_t offset);
  // What is missing for more names, each a sentence.
  const std::set<std::string>& missing() const { return missing_; }

 private:
  struct Object;
  Object& object_of(const TraceModule& module);
  void look_up(Object& object, uint64_t offset, std::vector<CodeName>* out);

  std::vector<std::string> folders_;
  std::set<std::string> missing_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Object>> objects_;
};

// A C++ name as it is written in the source.
std::string demangled(const std::string& name);

}  // namespace cupool::tools
