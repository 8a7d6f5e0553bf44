// See stack_text.hpp.
#include "tools/stack_text.hpp"

#include <algorithm>

#include "base/say.hpp"
#include "tools/code_names.hpp"
#include "tools/table.hpp"
#include "tools/trace_stacks.hpp"

namespace cupool::tools {
namespace {

std::string place_of(const std::string& function, const std::string& file, uint64_t line) {
  std::string out = function.empty() ? "?" : function;
  if (file.empty()) return out;
  return line == 0 ? out + " (" + file + ")" : make_text("{} ({}:{})", out, file, line);
}

std::string last_part(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

}  // namespace

const std::vector<std::string>& StackText::lines(uint64_t stack) {
  const auto [place, is_new] = known_.try_emplace(stack);
  std::vector<std::string>& out = place->second;
  if (!is_new) return out;
  // What calls main, or an interpreted program, is the same for all.
  bool is_main = false;
  std::vector<TraceFrame> frames = stacks_.frames(stack);
  const auto last = std::find_if(frames.rbegin(), frames.rend(),
                                 [](const TraceFrame& one) { return one.place != nullptr; });
  if (last != frames.rend() && last->place->function == "<module>") frames.erase(last.base(), frames.end());
  for (const TraceFrame& frame : frames) {
    if (is_main) break;
    if (frame.place != nullptr) {
      out.push_back(
          place_of(printable(frame.place->function), printable(frame.place->file), frame.place->line));
    } else if (frame.module == nullptr) {
      out.push_back(make_text("{:#x}", frame.address));
    } else {
      for (const CodeName& name : names_.at(*frame.module, frame.offset)) {
        is_main = is_main || name.function == "main";
        if (!name.file.empty() || !name.function.empty()) {
          out.push_back(place_of(name.function, name.file, static_cast<uint64_t>(name.line)));
          if (name.file.empty()) out.back() += " in " + printable(last_part(frame.module->path));
        } else {
          const std::string path = frame.module->path;
          out.push_back(
              make_text("{:#x} in {}", frame.offset, path.empty() ? "the program" : printable(path)));
        }
      }
    }
  }
  return out;
}

}  // namespace cupool::tools
