// See trace_lines.hpp.
#include "tools/trace_lines.hpp"

#include <algorithm>
#include <charconv>
#include <vector>

#include "trace/events.hpp"

namespace cupool::tools {

using trace::FieldType;

namespace {

void append_number(std::string* out, uint64_t value, int base = 10) {
  char digits[20];
  char* const end = std::to_chars(digits, digits + sizeof digits, value, base).ptr;
  out->append(digits, static_cast<size_t>(end - digits));
}
void append_word(std::string* out, const std::vector<std::string>& words, uint64_t number) {
  if (number < words.size()) {
    *out += words[number];
  } else {
    *out += '#';
    append_number(out, number);
  }
}

}  // namespace

void print_event(const TraceAbout& about, const Happened& happened, uint64_t begin, std::string* out) {
  const TraceEvent& event = about.events[happened.event];
  const uint64_t since = happened.time - std::min(begin, happened.time);
  append_number(out, since / 1'000'000'000);
  // With a digit before it, so that none of its zeros is lost.
  const size_t point = out->size();
  append_number(out, 1'000'000'000 + since % 1'000'000'000);
  (*out)[point] = '.';
  *out += ' ';
  append_number(out, happened.thread);
  *out += ' ';
  *out += event.name;
  for (size_t i = 0; i < event.fields.size(); ++i) {
    const TraceField& field = event.fields[i];
    const uint64_t value = happened.values[i];
    const bool is_text = field.type == FieldType::kText;
    const bool is_name = field.type == FieldType::kChoice || field.type == FieldType::kCall;
    if (is_text ? happened.text.empty() : value == 0 && !is_name && field.name != "device") continue;
    *out += ' ';
    *out += field.name;
    *out += '=';
    switch (field.type) {
      case FieldType::kText:
        *out += '"';
        *out += happened.text;
        *out += '"';
        break;
      case FieldType::kChoice:
        append_word(out, about.choices[field.choice], value);
        break;
      case FieldType::kCall:
        append_word(out, about.calls, value);
        break;
      case FieldType::kAddress:
      case FieldType::kStream:
      case FieldType::kContext:
        *out += "0x";
        append_number(out, value, 16);
        break;
      default:
        append_number(out, value);
    }
  }
}

// ---- What is live.

}  // namespace cupool::tools
