// See json.hpp. The grammar is nlohmann's; this is what listens to it, and stops it at the first thing that
// no report has: deep nesting, a name twice, an exponent, a zero character.
#include "tools/json.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/say.hpp"
#include "stats/counters.hpp"

namespace cupool::tools {

namespace {
constexpr int kDeepest = 16;
constexpr size_t kMostMembers = 4096;
constexpr size_t kMostTexts = 16;
constexpr size_t kLongestText = 4096;
constexpr size_t kMostBytes = size_t{8} << 20;
}  // namespace

class JsonReader {
 public:
  using number_integer_t = int64_t;
  using number_unsigned_t = uint64_t;
  using number_float_t = double;
  using string_t = std::string;
  using binary_t = nlohmann::json::binary_t;

  JsonReader(Json* out, std::string* error) : out_(out), error_(error) {}

  bool null() {
    return put(Json::Kind::kNull, [](Json&) {});
  }
  bool boolean(bool value) {
    return put(Json::Kind::kBool, [&](Json& json) { json.number_ = value ? 1 : 0; });
  }
  bool number_integer(number_integer_t value) {
    return put(Json::Kind::kNumber, [&](Json& json) { json.number_ = static_cast<double>(value); });
  }
  bool number_unsigned(number_unsigned_t value) {
    return put(Json::Kind::kNumber, [&](Json& json) {
      json.number_ = static_cast<double>(value);
      json.count_ = value;
      json.whole_ = true;
    });
  }
  bool number_float(number_float_t value, const string_t& digits) {
    if (digits.find_first_of("eE") != string_t::npos) return fail("a number with an exponent");
    return put(Json::Kind::kNumber, [&](Json& json) { json.number_ = value; });
  }
  bool string(string_t& value) {
    if (value.find('\0') != string_t::npos) return fail("a zero character in a text");
    if (value.size() > kLongestText) return fail("a text longer than any of a report");
    if (depth_ == 2 && in_list_) return add_text(std::move(value));
    return put(Json::Kind::kString, [&](Json& json) { json.text_ = std::move(value); });
  }
  bool binary(binary_t&) { return fail("binary data"); }

  bool start_object(size_t) { return open(false); }
  bool key(string_t& name) {
    if (name.find('\0') != string_t::npos) return fail("a zero character in a name");
    if (depth_ != 1) return true;
    if (out_->members_.size() >= kMostMembers) return fail("more names than any report has");
    if (out_->members_.contains(name)) return fail("the name " + printable(name.substr(0, 64)) + " twice");
    name_ = std::move(name);
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(size_t) { return depth_ == 0 ? fail("no object") : open(true); }
  bool end_array() { return close(); }

  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception&) {
    return fail("no JSON, at character " + std::to_string(at));
  }

 private:
  template <typename Set>
  bool put(Json::Kind kind, Set&& set) {
    if (depth_ == 0) return fail("no object");
    if (depth_ != 1) return true;
    Json& member = out_->members_[name_];
    member.kind_ = kind;
    set(member);
    return true;
  }
  bool add_text(std::string text) {
    std::vector<std::string>& texts = out_->members_[name_].texts_;
    if (texts.size() >= kMostTexts) return fail("more texts in a list than any report has");
    texts.push_back(std::move(text));
    return true;
  }
  bool open(bool is_list) {
    if (depth_ == 1) {
      out_->members_[name_].kind_ = Json::Kind::kNested;
      in_list_ = is_list;
    }
    return ++depth_ <= kDeepest || fail("deeper nesting than any report has");
  }
  bool close() {
    --depth_;
    return true;
  }
  bool fail(std::string what) {
    if (error_->empty()) *error_ = std::move(what);
    return false;
  }

  Json* out_;
  std::string* error_;
  std::string name_;
  int depth_ = 0;
  bool in_list_ = false;  // what is open at the top of the object
};

std::optional<Json> Json::parse(std::string_view text, std::string* error) {
  Json value;
  error->clear();
  value.kind_ = Kind::kNested;
  JsonReader reader(&value, error);
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) return value;
  if (error->empty()) *error = "no JSON";
  return std::nullopt;
}

const Json& Json::operator[](const std::string& name) const {
  static const Json kNone;
  const auto found = members_.find(name);
  return found == members_.end() ? kNone : found->second;
}

std::optional<Json> parse_report(std::string_view text, std::string* error) {
  auto json = Json::parse(text, error);
  if (!json) return std::nullopt;
  for (const char* const name :
       {"cupool", "host", "rank", "program", "instance", "mode", "mode_reason", "shortage"}) {
    const Json::Kind kind = (*json)[name].kind();
    const bool may_lack = strcmp(name, "cupool") != 0;
    if (kind == Json::Kind::kString || (may_lack && kind == Json::Kind::kNull)) continue;
    *error = std::string(name) + " is no text";
    return std::nullopt;
  }
  const auto check = [&](const char* name) {
    const Json& value = (*json)[name];
    if (value.kind() != Json::Kind::kNull && !value.is_count()) *error = std::string(name) + " is no count";
  };
  check("pid");
  stats::visit(stats::Sums{}, [&](const stats::CounterInfo& info, uint64_t) { check(info.name); });
  if (!error->empty()) return std::nullopt;
  return json;
}

std::optional<Json> read_report(const char* path, std::string* error) {
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  std::string text;
  ssize_t got = file < 0 ? -1 : 0;
  if (file >= 0) {
    char part[16384];
    while (text.size() <= kMostBytes && (got = read(file, part, sizeof part)) > 0)
      text.append(part, static_cast<size_t>(got));
  }
  const int failed = got < 0 ? errno : 0;
  if (file >= 0) close(file);
  if (failed != 0) {
    *error = "cannot read " + printable(path) + ": " + strerror(failed);
    return std::nullopt;
  }
  auto json = text.size() > kMostBytes ? std::nullopt : parse_report(text, error);
  if (!json) {
    if (text.size() > kMostBytes) *error = "it is longer than any";
    *error = printable(path) + " is not a report of cupool (CUPOOL_STATS=json): " + *error;
  }
  return json;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      out += make_text("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string printable(std::string_view text) {
  std::string out(text);
  flatten(out.data(), out.size());
  return out;
}

}  // namespace cupool::tools
