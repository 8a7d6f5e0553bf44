// A report as the library writes it, read back: the values at the top of one JSON object, and the texts of a
// list there. Other nested values (devices, sizes, options) are checked for syntax and dropped, so a file
// costs no more memory than its names and texts. The file is untrusted: anything that is not a report gives
// an error that says what and where, never an exception.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cupool::tools {

class Report {
 public:
  Report() = default;
  // One that was not written as text.
  Report(std::map<std::string, uint64_t> counts, std::map<std::string, std::string> texts,
         double fragmentation, std::vector<std::string> shortage_advice)
      : counts_(std::move(counts)),
        texts_(std::move(texts)),
        fragmentation_(fragmentation),
        shortage_advice_(std::move(shortage_advice)) {}

  // If there is none, `error` says what is wrong.
  static std::optional<Report> parse(std::string_view text, std::string* error);
  // Reads a whole file, up to the largest size a report can have. The error is a sentence with the file's
  // name.
  static std::optional<Report> read(const char* path, std::string* error);

  // A missing value is 0 or empty.
  uint64_t count(const std::string& name) const;
  std::string text(const std::string& name) const;
  double fragmentation() const { return fragmentation_; }
  const std::vector<std::string>& shortage_advice() const { return shortage_advice_; }

 private:
  std::map<std::string, uint64_t> counts_;
  std::map<std::string, std::string> texts_;
  double fragmentation_ = 0;
  std::vector<std::string> shortage_advice_;
};

// How many allocations of device memory, and of managed memory, the driver did not serve itself.
uint64_t pooled_allocations(const Report& report);
uint64_t pooled_managed(const Report& report);

}  // namespace cupool::tools
