// What an ELF file says of itself: its build-id, whether it has debug information, and the names of its
// functions. Reads the parts that it needs and trusts none of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cupool::tools {

class ElfFile {
 public:
  ElfFile() = default;
  ~ElfFile();
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  // False: there is no such file, or it is no ELF file of this kind of machine.
  bool open(const std::string& path);
  // As hexadecimal digits; empty: it has none.
  const std::string& build_id() const { return build_id_; }
  bool has_lines() const { return has_lines_; }
  int descriptor() const { return file_; }
  // The function that has the address, as the linker names it; empty: not known.
  std::string_view function_at(uint64_t address);

 private:
  struct Part {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint32_t link = 0;
    uint32_t type = 0;
  };
  struct Function {
    uint64_t begin;
    uint64_t end;
    uint32_t name;
  };
  bool read(uint64_t offset, void* to, size_t bytes) const;
  std::string read(const Part& part) const;
  void read_notes(const Part& part);
  void read_functions();

  int file_ = -1;
  uint64_t bytes_ = 0;
  bool has_lines_ = false;
  bool has_functions_ = false;
  std::string build_id_;
  std::vector<Part> parts_;
  std::vector<Function> functions_;
  std::string names_;
};

}  // namespace cupool::tools
