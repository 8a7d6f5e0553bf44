// Any bytes at all as sizes, as words, as a whole environment and as a JSON report: nothing crashes, nothing
// is read past its end, and what parses as a size prints as text that parses to the same size.
#include <cstdlib>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "config/parse.hpp"
#include "tools/report.hpp"

namespace {

void complain(const char* sentence) {
  // One line each, whatever the value held.
  if (sentence == nullptr || *sentence == '\0') abort();
}

void try_size(std::string_view text) {
  const auto size = cupool::parse_size(text);
  if (!size) return;
  const auto again = cupool::parse_size(cupool::print_size(*size).text);
  if (!again || !(*again == *size)) abort();
}

void try_environment(const std::string& text) {
  std::vector<std::string> entries;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    entries.push_back("CUPOOL_" + text.substr(at, end - at));
    at = end + 1;
  }
  std::vector<const char*> pointers;
  for (const std::string& entry : entries) pointers.push_back(entry.c_str());
  pointers.push_back(nullptr);
  cupool::config::read_environment(pointers.data(), complain);
}

void try_patterns(std::string_view text) {
  const size_t middle = text.find('\n');
  if (middle != std::string_view::npos) {
    cupool::config::matches_any(text.substr(0, middle), text.substr(middle + 1));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_size(text);
  try_environment(std::string(text));
  try_patterns(text);
  std::string error;
  const auto report = cupool::tools::Report::parse(text, &error);
  if (report.has_value() != error.empty()) abort();
  return 0;
}
