// See report.hpp. nlohmann's parser does the grammar; this file decides how much is kept, and stops at the
// first thing that no report contains: deep nesting, a duplicate name, a zero character.
#include "tools/report.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "stats/counters.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

using nlohmann::json;

constexpr int kDeepest = 16;
constexpr size_t kMostMembers = 4096;
constexpr size_t kMostTexts = 16;
constexpr size_t kLongestText = 4096;
constexpr size_t kMostBytes = size_t{8} << 20;
constexpr char kTexts[] = "shortage_advice";  // the one list that is read

// Thrown by the parser callback to stop parsing.
struct Refusal {
  std::string why;
};

void expect(bool holds, std::string why) {
  if (!holds) throw Refusal{std::move(why)};
}

std::string text_of(const json& value, const std::string& name) {
  expect(value.is_string(), name + " is no text");
  const auto& text = value.get_ref<const std::string&>();
  expect(text.find('\0') == std::string::npos, "a zero character in " + name);
  expect(text.size() <= kLongestText, name + " is longer than any of a report");
  return text;
}

// As read(2) of a file that does not block, but ETIMEDOUT: nothing came for some seconds.
ssize_t read_part(int file, char* out, size_t room) {
  constexpr int kPatienceMs = 10'000;
  for (;;) {
    const ssize_t got = read(file, out, room);
    if (got >= 0 || errno != EAGAIN) return got;
    pollfd one{file, POLLIN, 0};
    if (poll(&one, 1, kPatienceMs) > 0) continue;
    errno = ETIMEDOUT;
    return -1;
  }
}

json parse_bounded(std::string_view text) {
  std::set<std::string> names;
  std::string name;
  size_t texts = 0;
  const auto keep = [&](int depth, json::parse_event_t event, json& parsed) {
    expect(depth <= kDeepest, "deeper nesting than any report has");
    if (depth == 1 && event == json::parse_event_t::key) {
      name = parsed.get<std::string>();
      expect(names.insert(name).second, "the name " + printable(name.substr(0, 64)) + " twice");
      expect(names.size() <= kMostMembers, "more names than any report has");
    }
    if (depth < 2) return true;
    if (depth > 2 || name != kTexts || !parsed.is_string()) return false;
    expect(++texts <= kMostTexts, "more texts in a list than any report has");
    return true;
  };
  return json::parse(text.begin(), text.end(), keep);
}

}  // namespace

std::optional<Report> Report::parse(std::string_view text, std::string* error) {
  try {
    const json all = parse_bounded(text);
    expect(all.is_object(), "no object");
    expect(all.contains("cupool"), "it does not say which version wrote it");
    Report out;
    for (const char* const name :
         {"cupool", "host", "rank", "program", "instance", "mode", "mode_reason", "shortage"}) {
      if (const auto value = all.find(name); value != all.end()) out.texts_[name] = text_of(*value, name);
    }
    const auto add_count = [&](const char* name) {
      const auto value = all.find(name);
      if (value == all.end()) return;
      expect(value->is_number_unsigned(), std::string(name) + " is no count");
      out.counts_[name] = value->get<uint64_t>();
    };
    add_count("pid");
    stats::visit(stats::Sums{}, [&](const stats::CounterInfo& info, uint64_t) { add_count(info.name); });
    if (const auto value = all.find("fragmentation"); value != all.end()) {
      expect(value->is_number(), "fragmentation is no number");
      out.fragmentation_ = value->get<double>();
    }
    if (const auto value = all.find(kTexts); value != all.end()) {
      expect(value->is_array(), std::string(kTexts) + " is no list");
      for (const json& one : *value) out.shortage_advice_.push_back(text_of(one, kTexts));
    }
    error->clear();
    return out;
  } catch (const Refusal& refusal) {
    *error = refusal.why;
  } catch (const json::parse_error& failed) {
    *error = "no JSON, at character " + std::to_string(failed.byte);
  } catch (const json::exception&) {
    *error = "a number that is too large";
  }
  return std::nullopt;
}

std::optional<Report> Report::read(const char* path, std::string* error) {
  // A pipe is read while somebody writes to it, and nobody is waited for who does not.
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  std::string text;
  ssize_t got = file < 0 ? -1 : 0;
  if (file >= 0) {
    char part[16384];
    while (text.size() <= kMostBytes && (got = read_part(file, part, sizeof part)) > 0)
      text.append(part, static_cast<size_t>(got));
  }
  const int failed = got < 0 ? errno : 0;
  if (file >= 0) close(file);
  if (failed != 0) {
    *error = "cannot read " + printable(path) + ": " + strerror(failed);
    return std::nullopt;
  }
  auto report = text.size() > kMostBytes ? std::nullopt : parse(text, error);
  if (!report) {
    if (text.size() > kMostBytes) *error = "it is longer than any";
    *error = printable(path) + " is not a report of cupool (CUPOOL_STATS=json): " + *error;
  }
  return report;
}

uint64_t Report::count(const std::string& name) const {
  const auto found = counts_.find(name);
  return found == counts_.end() ? 0 : found->second;
}

std::string Report::text(const std::string& name) const {
  const auto found = texts_.find(name);
  return found == texts_.end() ? "" : found->second;
}

uint64_t pooled_allocations(const Report& report) {
  const uint64_t all = report.count("allocations");
  return all - std::min(all, report.count("forwarded_allocations"));
}

uint64_t pooled_managed(const Report& report) {
  const uint64_t all = report.count("managed_allocations");
  return all - std::min(all, report.count("forwarded_managed"));
}

}  // namespace cupool::tools
