// See symbols.hpp. libdw's interface is declared here as far as it is used, so that its headers are not
// needed.
#include "base/symbols.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "base/lock.hpp"
#include "base/system_library.hpp"

namespace cupool {
namespace {

using Module = void;
struct Callbacks {
  int (*find_elf)(Module*, void**, const char*, uintptr_t, char**, void**);
  int (*find_debuginfo)(Module*, void**, const char*, uintptr_t, const char*, const char*, uint32_t, char**);
  void* section_address;
  char** debuginfo_path;
};

// Never look for debug information in a separate file or over the network.
int find_no_debuginfo(Module*, void**, const char*, uintptr_t, const char*, const char*, uint32_t, char**) {
  return -1;
}

class Dwarf {
 public:
  // All modules as they are loaded now; those loaded later have no lines.
  Dwarf() {
    void* const library = open_system_library("libdw.so.1");
    if (library == nullptr) return;
    const auto find = [&](auto& out, const char* name) {
      out = reinterpret_cast<std::remove_reference_t<decltype(out)>>(dlsym(library, name));
      return out != nullptr;
    };
    void* (*begin)(const Callbacks*) = nullptr;
    int (*report)(void*, pid_t) = nullptr;
    int (*report_end)(void*, void*, void*) = nullptr;
    const bool all = find(begin, "dwfl_begin") && find(report, "dwfl_linux_proc_report") &&
                     find(report_end, "dwfl_report_end") && find(module_at_, "dwfl_addrmodule") &&
                     find(line_at_, "dwfl_module_getsrc") && find(describe_, "dwfl_lineinfo") &&
                     find(name_at_, "dwfl_module_addrname") &&
                     find(callbacks_.find_elf, "dwfl_linux_proc_find_elf");
    if (!all) return;
    callbacks_.find_debuginfo = find_no_debuginfo;
    session_ = begin(&callbacks_);
    if (session_ != nullptr &&
        (report(session_, getpid()) != 0 || report_end(session_, nullptr, nullptr) != 0))
      session_ = nullptr;
  }

  void look_up(uintptr_t address, Symbol* out) const {
    Module* const module = session_ == nullptr ? nullptr : module_at_(session_, address);
    if (module == nullptr) return;
    if (const char* const name = name_at_(module, address))
      strncpy(out->function, name, sizeof out->function - 1);
    void* const line = line_at_(module, address);
    if (line == nullptr) return;
    const char* const file = describe_(line, nullptr, &out->line, nullptr, nullptr, nullptr);
    if (file != nullptr) strncpy(out->file, file, sizeof out->file - 1);
  }

 private:
  Callbacks callbacks_{};
  void* session_ = nullptr;
  Module* (*module_at_)(void*, uintptr_t) = nullptr;
  void* (*line_at_)(Module*, uintptr_t) = nullptr;
  const char* (*describe_)(void*, uintptr_t*, int*, int*, uintptr_t*, uintptr_t*) = nullptr;
  const char* (*name_at_)(Module*, uintptr_t) = nullptr;
};

// libdw reads lazily and is not thread-safe; a thread that cannot get the lock in time prints no lines.
void look_up_line(uintptr_t address, Symbol* out) {
  static constinit Lock lock{Rank::kSymbols};
  static constinit const Dwarf* session = nullptr;
  if (!lock.try_lock_for_a_moment()) return;
  if (session == nullptr) session = new Dwarf;
  session->look_up(address, out);
  lock.unlock();
}

using Demangle = char* (*)(const char*, char*, size_t*, int*);

// That of a C++ library which is loaded, be it for a module of an interpreter alone; null if none is.
Demangle loaded_demangle() {
  static constinit std::atomic<void*> known{nullptr};
  void* found = known.load(std::memory_order_relaxed);
  if (found == nullptr) found = dlsym(RTLD_DEFAULT, "__cxa_demangle");
  if (found == nullptr) {
    void* const library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (library != nullptr) found = dlsym(library, "__cxa_demangle");
  }
  known.store(found, std::memory_order_relaxed);
  return reinterpret_cast<Demangle>(found);
}

void demangle(char* name, size_t room) {
  const Demangle function = strncmp(name, "_Z", 2) == 0 ? loaded_demangle() : nullptr;
  if (function == nullptr) return;
  int status = 0;
  char* const plain = function(name, nullptr, nullptr, &status);
  if (plain != nullptr && status == 0) strncpy(name, plain, room - 1);
  free(plain);
}

}  // namespace

Symbol symbol_at(void* address) {
  Symbol out;
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return out;
  out.base = info.dli_fbase;
  if (info.dli_fname != nullptr) strncpy(out.object, info.dli_fname, sizeof out.object - 1);
  if (info.dli_sname != nullptr) strncpy(out.function, info.dli_sname, sizeof out.function - 1);
  out.in_object = reinterpret_cast<uintptr_t>(address) - (map == nullptr ? 0 : map->l_addr);
  look_up_line(reinterpret_cast<uintptr_t>(address), &out);
  demangle(out.function, sizeof out.function);
  return out;
}

}  // namespace cupool
