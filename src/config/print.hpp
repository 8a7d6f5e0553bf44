// Options for people: the table that CUPOOL_HELP and `cupool options` print, and the page docs/options.md.
#pragma once

#include <string_view>
#include <utility>

#include "config/kinds.hpp"
#include "config/options.hpp"

namespace cupool::config {

struct OptionInfo {
  const char* name;
  const char* type;
  const char* fallback;
  const char* doc;
  bool expert;
  uint64_t low;  // bounds of numbers, and of sizes in bytes
  uint64_t high;
};

inline constexpr char kExpertHeading[] = "For experts: rarely needed, and more likely to change.";

// Calls f(OptionInfo, printed value) for every option, in the order of the table.
template <typename F>
void visit(const Options& options, F&& f) {
#define CUPOOL_OPTION(type, field, name, fallback, low, high, doc) \
  f(OptionInfo{name, describe(options.field), fallback, doc, false, low, high}, print(options.field).text);
#define CUPOOL_EXPERT(type, field, name, fallback, low, high, doc) \
  f(OptionInfo{name, describe(options.field), fallback, doc, true, low, high}, print(options.field).text);
#include "config/options.def"
}

// The same for the options whose value differs from that in `plain`.
template <typename F>
void visit_changed(const Options& options, const Options& plain, F&& f) {
#define CUPOOL_OPTION(type, field, name, fallback, low, high, doc)                \
  if (std::string_view(print(options.field).text) != print(plain.field).text) {   \
    f(OptionInfo{name, describe(options.field), fallback, doc, false, low, high}, \
      print(options.field).text);                                                 \
  }
#include "config/options.def"
}

// To stderr, without a prefix.
void print_help(const Options& options);

}  // namespace cupool::config
