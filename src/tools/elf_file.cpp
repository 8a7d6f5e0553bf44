// See elf_file.hpp.
#include "tools/elf_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace cupool::tools {
namespace {

constexpr uint64_t kMostNotes = 1 << 20;

}  // namespace

ElfFile::~ElfFile() {
  if (file_ >= 0) close(file_);
}

bool ElfFile::read(uint64_t offset, void* to, size_t bytes) const {
  return offset <= bytes_ && bytes <= bytes_ - offset &&
         pread(file_, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

std::string ElfFile::read(const Part& part) const {
  std::string out;
  if (part.type == SHT_NOBITS || part.offset > bytes_ || part.bytes > bytes_ - part.offset) return out;
  out.resize(part.bytes);
  if (!read(part.offset, out.data(), out.size())) out.clear();
  return out;
}

bool ElfFile::open(const std::string& path) {
  // (Nothing that would be waited for.)
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat about = {};
  if (file_ < 0 || fstat(file_, &about) != 0 || !S_ISREG(about.st_mode)) return false;
  bytes_ = static_cast<uint64_t>(about.st_size);
  Elf64_Ehdr head;
  if (!read(0, &head, sizeof head) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB)
    return false;
  std::vector<Elf64_Phdr> segments(head.e_phentsize == sizeof(Elf64_Phdr) ? head.e_phnum : 0);
  if (read(head.e_phoff, segments.data(), segments.size() * sizeof(Elf64_Phdr))) {
    for (const Elf64_Phdr& one : segments) {
      if (one.p_type == PT_NOTE) read_notes({one.p_offset, one.p_filesz, 0, SHT_NOTE});
    }
  }
  std::vector<Elf64_Shdr> sections(head.e_shentsize == sizeof(Elf64_Shdr) ? head.e_shnum : 0);
  if (!read(head.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) return true;
  for (const Elf64_Shdr& one : sections)
    parts_.push_back({one.sh_offset, one.sh_size, one.sh_link, one.sh_type});
  const std::string names = head.e_shstrndx < parts_.size() ? read(parts_[head.e_shstrndx]) : "";
  for (size_t i = 0; i < sections.size(); ++i) {
    if (parts_[i].type == SHT_NOTE && build_id_.empty()) read_notes(parts_[i]);
    if (sections[i].sh_name >= names.size() || parts_[i].type == SHT_NOBITS) continue;
    const std::string_view name = names.c_str() + sections[i].sh_name;
    has_lines_ = has_lines_ || name == ".debug_info" || name == ".zdebug_info";
  }
  return true;
}

void ElfFile::read_notes(const Part& part) {
  if (part.bytes > kMostNotes) return;
  const std::string notes = read(part);
  const auto padded = [](uint64_t bytes) { return (bytes + 3) & ~uint64_t{3}; };
  for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size();) {
    Elf64_Nhdr note;
    memcpy(&note, notes.data() + at, sizeof note);
    const uint64_t name = at + sizeof note;
    const uint64_t content = name + padded(note.n_namesz);
    at = content + padded(note.n_descsz);
    if (content + note.n_descsz > notes.size()) return;
    if (note.n_type != NT_GNU_BUILD_ID || notes.compare(name, 4, std::string_view("GNU\0", 4)) != 0) continue;
    constexpr char kDigits[] = "0123456789abcdef";
    build_id_.clear();
    for (uint64_t i = 0; i < note.n_descsz; ++i) {
      const auto byte = static_cast<unsigned char>(notes[content + i]);
      build_id_ += kDigits[byte >> 4];
      build_id_ += kDigits[byte & 15];
    }
  }
}

void ElfFile::read_functions() {
  has_functions_ = true;
  const Part* table = nullptr;
  for (const Part& part : parts_) {
    if (part.type == SHT_SYMTAB || (part.type == SHT_DYNSYM && table == nullptr)) table = &part;
  }
  if (table == nullptr || table->link >= parts_.size()) return;
  const std::string symbols = read(*table);
  names_ = read(parts_[table->link]);
  for (size_t at = 0; at + sizeof(Elf64_Sym) <= symbols.size(); at += sizeof(Elf64_Sym)) {
    Elf64_Sym one;
    memcpy(&one, symbols.data() + at, sizeof one);
    const int type = ELF64_ST_TYPE(one.st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || one.st_shndx == SHN_UNDEF ||
        one.st_name >= names_.size())
      continue;
    functions_.push_back({one.st_value, one.st_value + std::max<uint64_t>(one.st_size, 1), one.st_name});
  }
  std::sort(functions_.begin(), functions_.end(),
            [](const Function& a, const Function& b) { return a.begin < b.begin; });
}

std::string_view ElfFile::function_at(uint64_t address) {
  if (!has_functions_) read_functions();
  auto at = std::upper_bound(functions_.begin(), functions_.end(), address,
                             [](uint64_t a, const Function& b) { return a < b.begin; });
  if (at == functions_.begin() || address >= (--at)->end) return {};
  return names_.c_str() + at->name;
}

}  // namespace cupool::tools
