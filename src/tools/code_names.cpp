// See code_names.hpp.
#include "tools/code_names.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

#include "base/format.hpp"
#include "base/say.hpp"
#include "tools/dwarf.hpp"
#include "tools/elf_file.hpp"
#include "tools/table.hpp"
#include "tools/trace_stacks.hpp"

namespace cupool::tools {
namespace {

constexpr size_t kLongestName = 1024;

std::string last_part(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

// Nobody misses the lines of these.
bool is_of_system(const std::string& path) {
  return path.starts_with("/usr/") || path.starts_with("/lib") || path.starts_with("[") ||
         last_part(path).starts_with("libcupool.so");
}

// Owns what libdw gives out as malloc'ed memory.
struct Free {
  void operator()(dwarf::Entry* entries) const { free(entries); }
};
using Entries = std::unique_ptr<dwarf::Entry, Free>;

// The debug information of one file.
class Lines {
 public:
  Lines(const dwarf::Library& library, int descriptor)
      : library_(library), dwarf_(library.begin(descriptor, dwarf::kRead)) {
    if (dwarf_ != nullptr) read_units();
  }
  ~Lines() {
    if (dwarf_ != nullptr) library_.end(dwarf_);
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  void look_up(uint64_t address, std::vector<CodeName>* out) {
    auto at = std::upper_bound(units_.begin(), units_.end(), address,
                               [](uint64_t a, const Unit& b) { return a < b.begin; });
    dwarf::Entry unit;
    if (at == units_.begin() || address >= (--at)->end ||
        library_.entry_at(dwarf_, at->offset, &unit) == nullptr)
      return;
    CodeName now;
    if (void* const line = library_.line_at(&unit, address)) {
      const char* const file = library_.line_file(line, nullptr, nullptr);
      if (file != nullptr) now.file = printable(file);
      library_.line_number(line, &now.line);
    }
    void* files = nullptr;
    size_t count = 0;
    if (library_.files(&unit, &files, &count) != 0) count = 0;
    // The innermost scope, and from there outwards what it lies in.
    dwarf::Entry* found = nullptr;
    const int scopes = library_.scopes(&unit, address, &found);
    const Entries innermost(scopes > 0 ? found : nullptr);
    dwarf::Entry* around = nullptr;
    const int depth = scopes > 0 ? library_.parents(innermost.get(), &around) : 0;
    const Entries parents(depth > 0 ? around : nullptr);
    for (int i = 0; i < depth; ++i) {
      dwarf::Entry* const entry = parents.get() + i;
      const int tag = library_.tag(entry);
      if (tag != dwarf::kInlined && tag != dwarf::kFunction) continue;
      now.function = name_of(entry);
      out->push_back(now);
      if (tag == dwarf::kFunction) return;
      now = {};
      now.line = static_cast<int>(number_of(entry, dwarf::kCallLine));
      const uint64_t file = number_of(entry, dwarf::kCallFile);
      const char* const name = file < count ? library_.file_name(files, file, nullptr, nullptr) : nullptr;
      if (name != nullptr) now.file = printable(name);
    }
    if (!now.file.empty()) out->push_back(now);
  }

 private:
  struct Unit {
    uint64_t begin;
    uint64_t end;
    uint64_t offset;
  };

  // By the units themselves: not every compiler writes a table of addresses.
  void read_units() {
    constexpr ptrdiff_t kMostRanges = 1 << 20;
    uint64_t offset = 0;
    uint64_t next = 0;
    size_t header = 0;
    while (library_.next_unit(dwarf_, offset, &next, &header, nullptr, nullptr, nullptr) == 0 &&
           next > offset) {
      dwarf::Entry unit;
      if (library_.entry_at(dwarf_, offset + header, &unit) != nullptr) {
        uint64_t base = 0;
        uint64_t begin = 0;
        uint64_t end = 0;
        ptrdiff_t at = 0;
        for (ptrdiff_t i = 0; i < kMostRanges && (at = library_.ranges(&unit, at, &base, &begin, &end)) > 0;
             ++i)
          if (begin < end && begin != 0) units_.push_back({begin, end, offset + header});
      }
      offset = next;
    }
    std::sort(units_.begin(), units_.end(), [](const Unit& a, const Unit& b) { return a.begin < b.begin; });
  }

  std::string name_of(dwarf::Entry* entry) const {
    for (const unsigned which : {dwarf::kLinkageName, dwarf::kOldLinkageName}) {
      dwarf::Attribute attribute;
      if (library_.attribute(entry, which, &attribute) == nullptr) continue;
      if (const char* const name = library_.text(&attribute)) return demangled(name);
    }
    const char* const name = library_.name(entry);
    return name == nullptr ? "" : printable(name);
  }
  uint64_t number_of(dwarf::Entry* entry, unsigned which) const {
    dwarf::Attribute attribute;
    uint64_t value = 0;
    if (library_.own_attribute(entry, which, &attribute) == nullptr ||
        library_.number(&attribute, &value) != 0)
      return 0;
    return value;
  }

  const dwarf::Library& library_;
  void* dwarf_;
  std::vector<Unit> units_;
};

}  // namespace

std::string demangled(const std::string& name) {
  if (!name.starts_with("_Z") || name.size() > kLongestName) return printable(name.substr(0, kLongestName));
  int status = 0;
  char* const plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string out = printable(status == 0 && plain != nullptr ? std::string_view(plain) : name);
  free(plain);
  return out;
}

// What is known of one module: the file that has its lines, and the one that has its functions.
struct CodeNames::Object {
  std::unique_ptr<ElfFile> file;
  std::unique_ptr<ElfFile> functions;
  std::unique_ptr<Lines> lines;
  std::unordered_map<uint64_t, std::vector<CodeName>> known;
};

CodeNames::CodeNames(std::vector<std::string> folders) : folders_(std::move(folders)) {}
CodeNames::~CodeNames() = default;

CodeNames::Object& CodeNames::object_of(const TraceModule& module) {
  auto& object = objects_[{module.path, module.build_id}];
  if (object != nullptr) return *object;
  object = std::make_unique<Object>();
  const std::string& path = module.path;
  const std::string& id = module.build_id;
  const std::string name = last_part(path);
  const std::string folder = path.substr(0, path.size() - name.size());
  const std::string by_id =
      id.size() < 3 ? "" : ".build-id/" + id.substr(0, 2) + "/" + id.substr(2) + ".debug";
  std::vector<std::string> candidates;
  std::vector<std::string> folders = folders_;
  folders.emplace_back("/usr/lib/debug");
  for (const std::string& one : folders) {
    if (!by_id.empty()) candidates.push_back(make_text("{}/{}", one, by_id));
    if (name.empty()) continue;
    for (const std::string& middle : {std::string("/"), "/" + folder})
      for (const char* const end : {".debug", ""})
        candidates.push_back(make_text("{}{}{}{}", one, middle, name, end));
  }
  if (!path.empty()) {
    for (const char* const middle : {"", ".debug/"})
      candidates.push_back(make_text("{}{}{}.debug", folder, middle, name));
    candidates.push_back(path);
  }
  bool is_other = false;
  for (const std::string& one : candidates) {
    auto file = std::make_unique<ElfFile>();
    if (!file->open(one)) continue;
    if (file->build_id() != id) {
      is_other = is_other || one == path;
      continue;
    }
    if (file->has_lines() && object->file == nullptr) {
      object->file = std::move(file);
    } else if (object->functions == nullptr) {
      object->functions = std::move(file);
    }
  }
  if (object->file != nullptr) {
    const dwarf::Library* const library = dwarf::library();
    if (library == nullptr) {
      missing_.insert("lines are not looked up: libdw.so.1 is not installed (Debian has it in libdw1)");
    } else {
      object->lines = std::make_unique<Lines>(*library, object->file->descriptor());
    }
  } else if (is_other) {
    missing_.insert(
        make_text("{} is not the file that ran (its build-id is another one): no names from it; "
                  "--debug-path names a folder with the right one",
                  printable(path)));
  } else if (object->functions == nullptr && !path.empty()) {
    missing_.insert(make_text("{} is not here: no names from it; --debug-path names a folder that has it",
                              printable(path)));
  } else if (!is_of_system(path)) {
    missing_.insert(make_text("{} has no lines: build it with -g, or --debug-path names a folder with them",
                              path.empty() ? "the program" : printable(path)));
  }
  return *object;
}

void CodeNames::look_up(Object& object, uint64_t offset, std::vector<CodeName>* out) {
  if (object.lines != nullptr) object.lines->look_up(offset, out);
  if (!out->empty() && !out->back().function.empty()) return;
  for (ElfFile* const file : {object.file.get(), object.functions.get()}) {
    const std::string_view name = file == nullptr ? "" : file->function_at(offset);
    if (name.empty()) continue;
    if (out->empty()) out->emplace_back();
    out->back().function = demangled(std::string(name));
    return;
  }
}

const std::vector<CodeName>& CodeNames::at(const TraceModule& module, uint64_t offset) {
  Object& object = object_of(module);
  const auto [place, is_new] = object.known.try_emplace(offset);
  if (is_new) look_up(object, offset, &place->second);
  if (place->second.empty()) place->second.emplace_back();
  return place->second;
}

}  // namespace cupool::tools
