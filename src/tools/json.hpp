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

class Json {
 public:
  enum class Kind { kNull, kBool, kNumber, kString, kNested };

  // `error` is set where there is no value.
  static std::optional<Json> parse(std::string_view text, std::string* error);

  Kind kind() const { return kind_; }
  double number() const { return number_; }
  // A whole number as it stood there; doubles lose digits of large ones.
  uint64_t count() const { return count_; }
  bool is_count() const { return kind_ == Kind::kNumber && whole_; }
  const std::string& text() const { return text_; }
  // Of a list: its texts.
  const std::vector<std::string>& texts() const { return texts_; }
  const std::map<std::string, Json>& members() const { return members_; }

  // The member of that name; a null value when there is none.
  const Json& operator[](const std::string& name) const;

 private:
  friend class JsonReader;
  Kind kind_ = Kind::kNull;
  bool whole_ = false;
  double number_ = 0;
  uint64_t count_ = 0;
  std::string text_;
  std::vector<std::string> texts_;
  std::map<std::string, Json> members_;
};

// One report: its cells are of the kinds that the library writes. `error` says what is wrong where there is
// none.
std::optional<Json> parse_report(std::string_view text, std::string* error);
// All of a file, which is no longer than a report can be. The error is a sentence with the file's name.
std::optional<Json> read_report(const char* path, std::string* error);

// In double quotes, as JSON wants it.
std::string quoted(std::string_view text);
// On a line of a terminal: nothing in it moves the cursor, ends the line or changes its direction.
std::string printable(std::string_view text);

}  // namespace cupool::tools
