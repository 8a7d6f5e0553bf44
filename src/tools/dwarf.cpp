// See dwarf.hpp.
#include "tools/dwarf.hpp"

#include <dlfcn.h>

#include <type_traits>

#include "base/system_library.hpp"

namespace cupool::tools::dwarf {
namespace {

bool open(Library* out) {
  void* const library = open_system_library("libdw.so.1");
  if (library == nullptr) return false;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  return find(out->begin, "dwarf_begin") && find(out->end, "dwarf_end") &&
         find(out->next_unit, "dwarf_nextcu") && find(out->entry_at, "dwarf_offdie") &&
         find(out->ranges, "dwarf_ranges") && find(out->scopes, "dwarf_getscopes") &&
         find(out->parents, "dwarf_getscopes_die") && find(out->tag, "dwarf_tag") &&
         find(out->name, "dwarf_diename") && find(out->attribute, "dwarf_attr_integrate") &&
         find(out->own_attribute, "dwarf_attr") && find(out->text, "dwarf_formstring") &&
         find(out->number, "dwarf_formudata") && find(out->line_at, "dwarf_getsrc_die") &&
         find(out->line_number, "dwarf_lineno") && find(out->line_file, "dwarf_linesrc") &&
         find(out->files, "dwarf_getsrcfiles") && find(out->file_name, "dwarf_filesrc");
}

}  // namespace

const Library* library() {
  static Library all = {};
  static const bool is_there = open(&all);
  return is_there ? &all : nullptr;
}

}  // namespace cupool::tools::dwarf
