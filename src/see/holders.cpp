// See holders.hpp.
#include "see/holders.hpp"

#include <algorithm>

#include "base/say.hpp"

namespace cupool::see {
namespace {

std::string without_folders(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

// Of one address, the innermost function first; without symbols it is a place in its library.
void add_frames(const tools::TraceFrame& frame, tools::CodeNames& names, std::vector<Frame>* out) {
  if (frame.place != nullptr) {
    const std::string file(frame.place->file);
    out->push_back(
        {std::string(frame.place->function), without_folders(file), file, frame.place->line, true});
    return;
  }
  if (frame.module == nullptr) {
    out->push_back({make_text("{:#x}", frame.address), "unknown", "", 0, false});
    return;
  }
  const std::string library = without_folders(frame.module->path);
  for (const tools::CodeName& name : names.at(*frame.module, frame.offset)) {
    const bool is_named = !name.function.empty();
    out->push_back({is_named ? name.function : make_text("{}+{:#x}", library, frame.offset), library,
                    name.file, static_cast<uint64_t>(std::max(name.line, 0)), is_named});
  }
}

// Sources that came with the system, the toolkit, an interpreter or a package, by where they lie.
bool is_of_others(const std::string& file) {
  for (const char* const folder : {"/site-packages/", "/dist-packages/", "/lib/python", "/usr/include/",
                                   "/usr/local/cuda", "<frozen "}) {
    if (file.find(folder) != std::string::npos) return true;
  }
  return false;
}

// Libraries that ask for memory on behalf of whoever called them.
bool hands_on(const std::string& library) {
  return library.starts_with("libcuda") || library.starts_with("libc10") || library.starts_with("libcupool");
}

// How little a frame says of who asked.
int distance(const Frame& frame) {
  if (frame.line != 0) return is_of_others(frame.file) ? 1 : 0;
  return (hands_on(frame.library) ? 4 : 2) + (frame.is_named ? 0 : 1);
}

}  // namespace

std::string Frame::text() const {
  std::string out = function;
  if (!file.empty()) out += " (" + without_folders(file) + (line == 0 ? ")" : make_text(":{})", line));
  return out;
}

uint32_t Holders::number_of(Frame frame) {
  std::string key = frame.function + '\n' + frame.library + '\n' + frame.file + make_text("\n{}", frame.line);
  const auto [at, is_new] = numbers_.try_emplace(std::move(key), static_cast<uint32_t>(table_.size()));
  if (is_new) table_.push_back(std::move(frame));
  return at->second;
}

// Stacks that differ in addresses alone may have the same frames.
uint32_t Holders::add(std::vector<uint32_t> frames) {
  const std::string key(reinterpret_cast<const char*>(frames.data()), frames.size() * sizeof frames[0]);
  const auto [at, is_new] = rows_.try_emplace(key, static_cast<uint32_t>(stacks_.size()));
  if (is_new) {
    faces_.push_back(find_face(frames));
    stacks_.push_back(std::move(frames));
  }
  return at->second;
}

Holders::Holders(const Model& model, tools::CodeNames& names) {
  std::vector<bool> is_used(model.about().calls.size() + 1);
  const auto use = [&](uint32_t stack, uint16_t call) {
    if (stack == 0) is_used[std::min<size_t>(call, is_used.size() - 1)] = true;
  };
  for (const Life& life : model.lives) use(life.stack, life.call);
  for (const Wait& wait : model.waits) use(wait.stack, wait.call);
  for (const Failure& failure : model.failures) use(failure.stack, failure.call);
  of_call_.assign(is_used.size(), 0);
  for (size_t call = 0; call < is_used.size(); ++call) {
    if (is_used[call]) of_call_[call] = add({number_of({model.call_name(call), "no stack", "", 0, true})});
  }
  of_stack_.assign(model.stack_numbers.size(), 0);
  for (size_t stack = 1; stack < model.stack_numbers.size(); ++stack) {
    std::vector<uint32_t> frames;
    std::vector<Frame> found;
    for (const tools::TraceFrame& frame : model.reader().stacks().frames(model.stack_numbers[stack]))
      add_frames(frame, names, &found);
    frames.reserve(found.size());
    for (Frame& frame : found) frames.push_back(number_of(std::move(frame)));
    if (frames.empty()) frames.push_back(number_of({"a stack that is missing", "no stack", "", 0, true}));
    std::reverse(frames.begin(), frames.end());
    of_stack_[stack] = add(std::move(frames));
  }
}

uint32_t Holders::find_face(const std::vector<uint32_t>& frames) const {
  return *std::min_element(frames.rbegin(), frames.rend(),
                           [&](uint32_t a, uint32_t b) { return distance(table_[a]) < distance(table_[b]); });
}

}  // namespace cupool::see
