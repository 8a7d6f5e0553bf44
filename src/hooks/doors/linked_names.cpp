// See linked_names.hpp.
#include "hooks/doors/linked_names.hpp"

#include <link.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/after_fork.hpp"
#include "base/lock.hpp"
#include "base/no_destroy.hpp"
#include "hooks/doors/table.hpp"
#include "hooks/doors/untracked_work.hpp"

namespace cupool::hooks {

namespace {

using Names = std::vector<std::string_view>;

constinit Lock lock{Rank::kLinkedNames};
constinit NoDestroy<Names> unknown CUPOOL_GUARDED_BY(lock);
constinit bool has_read_driver CUPOOL_GUARDED_BY(lock) = false;
constinit NoDestroy<std::vector<uintptr_t>> looked_at CUPOOL_GUARDED_BY(lock);
constinit unsigned long long unloads CUPOOL_GUARDED_BY(lock) = 0;

// The exports and imports of an object. Without a hash table its symbols cannot be looked up.
struct Symbols {
  const ElfW(Sym) * all = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* old_hash = nullptr;
  struct Relocations {
    const ElfW(Rela) * all = nullptr;
    size_t bytes = 0;
  };
  Relocations relocations[2];  // of data and of calls

  explicit Symbols(const dl_phdr_info& object) {
    const ElfW(Dyn)* entry = nullptr;
    for (int i = 0; i < object.dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = object.dlpi_phdr[i];
      if (part.p_type == PT_DYNAMIC)
        entry = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + part.p_vaddr);
    }
    for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
      // The loader has relocated these to addresses, except in objects that it did not load itself.
      const ElfW(Addr) value = entry->d_un.d_ptr;
      const ElfW(Addr) at = value < object.dlpi_addr ? object.dlpi_addr + value : value;
      if (entry->d_tag == DT_SYMTAB) all = reinterpret_cast<const ElfW(Sym)*>(at);
      if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(at);
      if (entry->d_tag == DT_GNU_HASH) gnu_hash = reinterpret_cast<const uint32_t*>(at);
      if (entry->d_tag == DT_HASH) old_hash = reinterpret_cast<const uint32_t*>(at);
      if (entry->d_tag == DT_RELA) relocations[0].all = reinterpret_cast<const ElfW(Rela)*>(at);
      if (entry->d_tag == DT_RELASZ) relocations[0].bytes = entry->d_un.d_val;
      if (entry->d_tag == DT_JMPREL) relocations[1].all = reinterpret_cast<const ElfW(Rela)*>(at);
      if (entry->d_tag == DT_PLTRELSZ) relocations[1].bytes = entry->d_un.d_val;
    }
  }

  bool is_readable() const {
    return all != nullptr && strings != nullptr && (gnu_hash != nullptr || old_hash != nullptr);
  }
  // The GNU hash table covers exported symbols, which follow all others. If nothing is exported, it does not
  // tell how many others there are; but every imported symbol has a relocation.
  size_t imports_end() const {
    if (gnu_hash == nullptr) return old_hash[1];
    if (exports_end() > gnu_hash[1]) return gnu_hash[1];
    size_t last = 0;
    for (const Relocations& list : relocations) {
      for (size_t i = 0; i < list.bytes / sizeof(ElfW(Rela)); ++i)
        last = std::max<size_t>(last, ELF64_R_SYM(list.all[i].r_info));
    }
    return last + 1;
  }
  size_t exports_end() const {
    if (gnu_hash == nullptr) return old_hash[1];
    const uint32_t* const buckets = gnu_hash + 4 + gnu_hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t* const chains = buckets + gnu_hash[0];
    uint32_t last = 0;
    for (uint32_t i = 0; i < gnu_hash[0]; ++i) last = std::max(last, buckets[i]);
    if (last < gnu_hash[1]) return gnu_hash[1];
    while ((chains[last - gnu_hash[1]] & 1) == 0) ++last;
    return last + 1;
  }
  // Calls `f(name)` for every import or export that is named like a function of the driver.
  template <typename F>
  void for_each(bool imported, F&& f) const {
    const size_t end = imported ? imports_end() : exports_end();
    for (size_t i = 1; i < end; ++i) {
      if ((all[i].st_shndx == SHN_UNDEF) != imported) continue;
      const char* const name = strings + all[i].st_name;
      if (name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z') f(std::string_view(name));
    }
  }
};

bool contains(const dl_phdr_info& object, uintptr_t address) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object.dlpi_phdr[i];
    if (part.p_type == PT_LOAD && address - object.dlpi_addr - part.p_vaddr < part.p_memsz) return true;
  }
  return false;
}

int read_driver(dl_phdr_info* object, size_t, void* names) {
  if (!contains(*object, reinterpret_cast<uintptr_t>(cuda::driver_symbol("cuInit")))) return 0;
  const Symbols symbols(*object);
  if (!symbols.is_readable()) return 1;
  symbols.for_each(false, [&](std::string_view name) {
    if (!is_known_symbol(name)) static_cast<Names*>(names)->push_back(name);
  });
  return 1;
}

struct Search {
  const Names& unknown;
  std::vector<uintptr_t>& looked_at;
  unsigned long long& unloads;
  const char* found = nullptr;
};

int read_imports(dl_phdr_info* object, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  // After an unload, another object may be at the same address.
  if (object->dlpi_subs != search.unloads) search.looked_at.clear();
  search.unloads = object->dlpi_subs;
  auto& seen = search.looked_at;
  if (std::find(seen.begin(), seen.end(), object->dlpi_addr) != seen.end()) return 0;
  seen.push_back(object->dlpi_addr);
  const Symbols symbols(*object);
  if (!symbols.is_readable()) return 0;
  symbols.for_each(true, [&](std::string_view name) {
    if (std::binary_search(search.unknown.begin(), search.unknown.end(), name)) search.found = name.data();
  });
  return search.found != nullptr ? 1 : 0;
}

}  // namespace

void look_for_unknown_names() {
  const char* found = nullptr;
  {
    Guard hold(lock);
    if (!has_read_driver) {
      has_read_driver = true;
      dl_iterate_phdr(read_driver, &unknown.value);
      std::sort(unknown.value.begin(), unknown.value.end());
    }
    if (unknown.value.empty()) return;
    Search search{unknown.value, looked_at.value, unloads};
    dl_iterate_phdr(read_imports, &search);
    found = search.found;
  }
  if (found != nullptr) note_unknown_entry_point(found);
}

namespace {
// The names read from the driver and from objects stay valid in the child.
CUPOOL_AFTER_FORK(after_fork, [] { lock.reset_after_fork(); });
}  // namespace

}  // namespace cupool::hooks
