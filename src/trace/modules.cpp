// See modules.hpp. The loader's list is copied into pages of this thread's, then compared with ours under the
// lock.
#include "trace/modules.hpp"

#include <elf.h>
#include <limits.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/pages.hpp"

namespace cupool::trace {

// What the loader says, in pages.
struct Modules::Seen {
  static constexpr size_t kMostSeen = 4096;
  static constexpr size_t kTexts = 1 << 20;
  uint64_t changes;
  size_t count;
  size_t text_bytes;
  Module modules[kMostSeen];
  char texts[kTexts];
};

namespace {

uint64_t changes_of(const dl_phdr_info& info) { return info.dlpi_adds + info.dlpi_subs; }

int count_changes(dl_phdr_info* info, size_t, void* out) {
  *static_cast<uint64_t*>(out) = changes_of(*info);
  return 1;
}

// Notes lie in a segment that is loaded, unless somebody has changed the file: then the place may be
// anything.
bool is_loaded(const dl_phdr_info& info, const ElfW(Phdr) & notes) {
  return std::any_of(info.dlpi_phdr, info.dlpi_phdr + info.dlpi_phnum, [&](const ElfW(Phdr) & segment) {
    return segment.p_type == PT_LOAD && (segment.p_flags & PF_R) != 0 && notes.p_vaddr >= segment.p_vaddr &&
           notes.p_memsz <= segment.p_filesz &&
           notes.p_vaddr - segment.p_vaddr <= segment.p_filesz - notes.p_memsz;
  });
}

// The build-id among the notes of a segment.
void read_build_id(const dl_phdr_info& info, const ElfW(Phdr) & segment, Modules::Module* out) {
  const auto* at = reinterpret_cast<const uint8_t*>(info.dlpi_addr + segment.p_vaddr);
  const uint8_t* const end = at + segment.p_memsz;
  while (static_cast<size_t>(end - at) >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    memcpy(&note, at, sizeof note);
    const size_t name = (size_t{note.n_namesz} + 3) & ~size_t{3};
    const size_t content = (size_t{note.n_descsz} + 3) & ~size_t{3};
    if (name + content > static_cast<size_t>(end - at) - sizeof note) return;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(at + sizeof note, "GNU", 4) == 0) {
      out->build_id_bytes = static_cast<uint8_t>(std::min<size_t>(note.n_descsz, sizeof out->build_id));
      memcpy(out->build_id, at + sizeof note + name, out->build_id_bytes);
      return;
    }
    at += sizeof note + name + content;
  }
}

}  // namespace

bool Modules::see(Seen* seen) {
  const auto see_one = [](dl_phdr_info* info, size_t, void* argument) {
    Seen& all = *static_cast<Seen*>(argument);
    all.changes = changes_of(*info);
    if (all.count == Seen::kMostSeen) return 1;
    Module& one = all.modules[all.count];
    one = {};
    one.bias = info->dlpi_addr;
    one.begin = ~uint64_t{0};
    for (size_t i = 0; i < info->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = info->dlpi_phdr[i];
      if (segment.p_type == PT_LOAD) {
        const uint64_t begin = info->dlpi_addr + segment.p_vaddr;
        one.begin = std::min(one.begin, begin);
        one.end = std::max(one.end, begin + segment.p_memsz);
      } else if (segment.p_type == PT_NOTE && one.build_id_bytes == 0 && is_loaded(*info, segment)) {
        read_build_id(*info, segment, &one);
      }
    }
    const std::string_view name = info->dlpi_name == nullptr ? "" : info->dlpi_name;
    if (one.end == 0 || all.text_bytes + name.size() + 1 > Seen::kTexts) return 0;
    char* const text = all.texts + all.text_bytes;
    memcpy(text, name.data(), name.size());
    text[name.size()] = '\0';
    one.path = text;
    all.text_bytes += name.size() + 1;
    ++all.count;
    return 0;
  };
  dl_iterate_phdr(see_one, seen);
  if (seen->count == 0) return false;
  // The first one is the program, which the loader does not name.
  Module& program = seen->modules[0];
  if (*program.path == '\0' && Seen::kTexts - seen->text_bytes > PATH_MAX) {
    char* const text = seen->texts + seen->text_bytes;
    const ssize_t size = readlink("/proc/self/exe", text, PATH_MAX - 1);
    if (size > 0) {
      text[size] = '\0';
      program.path = text;
      seen->text_bytes += static_cast<size_t>(size) + 1;
    }
  }
  return true;
}

uint32_t Modules::look() {
  uint64_t changes = 0;
  dl_iterate_phdr(count_changes, &changes);
  if (changes_.load(std::memory_order_acquire) == changes) return map();
  auto* const seen = static_cast<Seen*>(map_pages(sizeof(Seen)));
  if (seen == nullptr) return map();
  if (see(seen)) {
    Guard hold(lock_);
    // (Another thread may have seen more.)
    if (changes_.load(std::memory_order_relaxed) < seen->changes) publish(*seen);
  }
  unmap_pages(seen, sizeof(Seen));
  return map();
}

// The same path is often loaded again, and each is kept once.
const char* Modules::keep(const char* path) {
  for (size_t i = 0; i < count_; ++i) {
    if (strcmp(modules_[i].path, path) == 0) return modules_[i].path;
  }
  const size_t bytes = strlen(path) + 1;
  if (bytes > text_room_) {
    text_ = static_cast<char*>(map_pages(kTextPages));
    text_room_ = text_ == nullptr ? 0 : kTextPages;
    if (bytes > text_room_) return "";
  }
  memcpy(text_, path, bytes);
  text_room_ -= bytes;
  text_ += bytes;
  return text_ - bytes;
}

void Modules::publish(const Seen& seen) {
  if (modules_ == nullptr) modules_ = static_cast<Module*>(map_pages(kMost * sizeof(Module)));
  if (modules_ == nullptr) return;
  const uint32_t now = map_.load(std::memory_order_relaxed) + 1;
  const auto is_same = [](const Module& a, const Module& b) {
    return a.begin == b.begin && a.end == b.end && a.build_id_bytes == b.build_id_bytes &&
           memcmp(a.build_id, b.build_id, a.build_id_bytes) == 0 && strcmp(a.path, b.path) == 0;
  };
  const size_t before = count_;
  bool is_there[Seen::kMostSeen] = {};
  for (size_t i = 0; i < before; ++i) {
    Module& one = modules_[i];
    if (one.gone != 0) continue;
    const Module* const end = seen.modules + seen.count;
    const Module* const found =
        std::find_if(seen.modules, end, [&](const Module& m) { return is_same(m, one); });
    if (found == end) {
      one.gone = now;
    } else {
      is_there[found - seen.modules] = true;
    }
  }
  bool is_reused = false;
  for (size_t i = 0; i < seen.count; ++i) {
    if (is_there[i] || count_ == kMost) continue;
    const Module& fresh = seen.modules[i];
    for (size_t old = 0; old < before; ++old) {
      if (modules_[old].gone != 0 && modules_[old].begin < fresh.end && fresh.begin < modules_[old].end)
        is_reused = true;
    }
    Module made = fresh;
    made.map = now;
    made.path = keep(fresh.path);
    modules_[count_++] = made;
  }
  if (is_reused) reuses_.fetch_add(1, std::memory_order_release);
  map_.store(now, std::memory_order_release);
  changes_.store(seen.changes, std::memory_order_release);
}

void Modules::forget_told() {
  if (!lock_.try_lock_for_a_moment()) return;
  for (size_t i = 0; i < count_; ++i) modules_[i].is_told = modules_[i].is_gone_told = false;
  lock_.unlock();
}

bool Modules::has_path_with(std::string_view part) {
  Guard hold(lock_);
  for (size_t i = 0; i < count_; ++i) {
    const Module& one = modules_[i];
    if (one.gone == 0 && std::string_view(one.path).find(part) != std::string_view::npos) return true;
  }
  return false;
}

bool Modules::find(uint64_t address, uint32_t map, Module* out) {
  Guard hold(lock_);
  for (size_t i = 0; i < count_; ++i) {
    const Module& one = modules_[i];
    if (one.begin > address || address >= one.end || one.map > map || (one.gone != 0 && one.gone <= map))
      continue;
    *out = one;
    return true;
  }
  return false;
}

}  // namespace cupool::trace
