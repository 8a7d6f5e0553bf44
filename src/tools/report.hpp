// A report as the library writes it, read back: the values at the top of one JSON object, and the texts of a
// list there. What else is nested (devices, sizes, options) is read for its form and left out, so a file of
// any size costs no more memory than its names and texts. The file may be anybody's: whatever is not a report
// gives an error that says what and where, never an exception.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cupool::tools {

class Report {
 public:
  // `error` says what is wrong where there is none.
  static std::optional<Report> parse(std::string_view text, std::string* error);
  // All of a file, which is no longer than a report can be. The error is a sentence with the file's name.
  static std::optional<Report> read(const char* path, std::string* error);

  // What the report does not say is 0 or empty.
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

}  // namespace cupool::tools
