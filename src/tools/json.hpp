// Reading JSON as the library writes it: objects, arrays, numbers, strings, true, false, null. Small, strict,
// and bounded in depth; a file that is not JSON gives no value and a place where it went wrong.
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
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  static std::optional<Json> parse(std::string_view text, size_t* fault);

  Kind kind() const { return kind_; }
  bool is_object() const { return kind_ == Kind::kObject; }
  double number() const { return number_; }
  // A whole number as it stood there; doubles lose digits of large ones.
  uint64_t count() const { return count_; }
  const std::string& text() const { return text_; }
  const std::vector<Json>& items() const { return items_; }
  const std::map<std::string, Json>& members() const { return members_; }

  // The member of that name; a null value when there is none.
  const Json& operator[](const std::string& name) const;

 private:
  friend class JsonReader;
  Kind kind_ = Kind::kNull;
  double number_ = 0;
  uint64_t count_ = 0;
  std::string text_;
  std::vector<Json> items_;
  std::map<std::string, Json> members_;
};

// In double quotes, as JSON wants it.
std::string quoted(std::string_view text);

}  // namespace cupool::tools
