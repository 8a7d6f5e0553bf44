// See json.hpp.
#include "tools/json.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cupool::tools {

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  bool read_document(Json* out) {
    if (!read(out, 0)) return false;
    skip_space();
    return at_ == text_.size();
  }
  size_t place() const { return at_; }

 private:
  static constexpr int kDeepest = 64;

  void skip_space() {
    while (at_ < text_.size() && strchr(" \t\r\n", text_[at_]) != nullptr) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  bool read(Json* out, int depth) {
    skip_space();
    if (at_ >= text_.size() || depth > kDeepest) return false;
    const char c = text_[at_];
    if (c == '{') return read_object(out, depth);
    if (c == '[') return read_array(out, depth);
    if (c == '"') {
      out->kind_ = Json::Kind::kString;
      return read_string(&out->text_);
    }
    if (c == 't' || c == 'f') {
      out->kind_ = Json::Kind::kBool;
      out->number_ = c == 't' ? 1 : 0;
      return take_word(c == 't' ? "true" : "false");
    }
    return c == 'n' ? take_word("null") : read_number(out);
  }

  bool read_object(Json* out, int depth) {
    out->kind_ = Json::Kind::kObject;
    if (!take('{')) return false;
    if (take('}')) return true;
    do {
      std::string name;
      skip_space();
      if (!read_string(&name) || !take(':') || !read(&out->members_[name], depth + 1)) return false;
    } while (take(','));
    return take('}');
  }

  bool read_array(Json* out, int depth) {
    out->kind_ = Json::Kind::kArray;
    if (!take('[')) return false;
    if (take(']')) return true;
    do {
      if (!read(&out->items_.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take(']');
  }

  bool read_string(std::string* out) {
    if (at_ >= text_.size() || text_[at_] != '"') return false;
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c != '\\') {
        *out += c;
      } else if (!read_escape(out)) {
        return false;
      }
    }
    return false;
  }

  // Behind a backslash; leaves the place on the last character of the escape.
  bool read_escape(std::string* out) {
    if (++at_ >= text_.size()) return false;
    static constexpr std::string_view kFrom = "\"\\/bfnrt";
    static constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    if (const size_t i = kFrom.find(text_[at_]); i != std::string_view::npos) {
      *out += kTo[i];
      return true;
    }
    if (text_[at_] != 'u' || at_ + 4 >= text_.size()) return false;
    unsigned code = 0;
    for (int i = 0; i < 4; ++i) {
      const char* const digits = "0123456789abcdef";
      const char* const found = strchr(digits, text_[++at_] | 0x20);
      if (found == nullptr || *found == '\0') return false;
      code = code * 16 + static_cast<unsigned>(found - digits);
    }
    // The library escapes bytes, not characters: below 256 the byte itself comes back.
    *out += code < 256 ? static_cast<char>(code) : '?';
    return true;
  }

  bool read_number(Json* out) {
    size_t end = at_;
    while (end < text_.size() && strchr("+-.0123456789eE", text_[end]) != nullptr) ++end;
    if (end == at_) return false;
    const std::string digits(text_.substr(at_, end - at_));
    char* rest = nullptr;
    out->kind_ = Json::Kind::kNumber;
    out->number_ = strtod(digits.c_str(), &rest);
    if (*rest != '\0') return false;
    out->count_ = digits[0] == '-' ? 0 : strtoull(digits.c_str(), nullptr, 10);
    at_ = end;
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

std::optional<Json> Json::parse(std::string_view text, size_t* fault) {
  Json value;
  JsonReader reader(text);
  if (reader.read_document(&value)) return value;
  *fault = reader.place();
  return std::nullopt;
}

const Json& Json::operator[](const std::string& name) const {
  static const Json kNone;
  const auto found = members_.find(name);
  return found == members_.end() ? kNone : found->second;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      char code[8];
      snprintf(code, sizeof code, "\\u%04x", byte);
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace cupool::tools
