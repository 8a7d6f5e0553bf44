// See parse.hpp.
#include "config/parse.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/format.hpp"
#include "config/kinds.hpp"

namespace cupool::config {
namespace {

constexpr std::string_view kPrefix = "CUPOOL_";
constexpr std::string_view kSimPrefix = "CUPOOL_SIM_";
constexpr size_t kMaxName = 48;
constexpr size_t kShown = 64;  // of a value

class Reader {
 public:
  explicit Reader(Complain complain) : complain_(complain) {}

  template <typename... Args>
  void say(Format<Args...> text, const Args&... args) const {
    char sentence[512];
    format_into(sentence, text, args...);
    complain_(sentence);
  }

  template <typename T>
  void take(T& field, const char* name, const char* value, uint64_t low, uint64_t high) const {
    T parsed = field;
    if (!parse(value, parsed)) {
      const char* const kind = describe(field);
      const char* const article = strchr(kind, '|') != nullptr ? "one of" : "a";
      say("{}={} is not {} {}; using {} instead", name, first(value, kShown), article, kind, print(field));
    } else if (!in_range(parsed, low, high)) {
      say("{}={} is outside {} to {}; using {} instead", name, first(value, kShown), print(bound(field, low)),
          print(bound(field, high)), print(field));
    } else {
      field = parsed;
    }
  }

 private:
  template <typename T>
  static bool in_range(const T& value, uint64_t low, uint64_t high) {
    if constexpr (std::is_same_v<T, uint64_t>) return value >= low && value <= high;
    if constexpr (std::is_same_v<T, Size>)
      return value.percent || (value.bytes >= low && value.bytes <= high);
    return true;
  }
  template <typename T>
  static T bound(const T& field, uint64_t value) {
    if constexpr (std::is_same_v<T, uint64_t>) return value;
    if constexpr (std::is_same_v<T, Size>) return Size{value, false};
    return field;
  }

  Complain complain_;
};

void take_entry(Options& options, const Reader& reader, std::string_view name, const char* value) {
#define CUPOOL_OPTION(type, field, option, fallback, low, high, doc) \
  if (name == option) return reader.take(options.field, option, value, low, high);
#include "config/options.def"
  const char* const near = nearest_name(name);
  if (near != nullptr) {
    reader.say("unknown option {} (did you mean {}?); ignoring it", first(name, kMaxName), near);
  } else {
    reader.say("unknown option {}; ignoring it (CUPOOL_HELP=1 lists all)", first(name, kMaxName));
  }
}

void require_power_of_two(Size& field, const char* name, const Size& fallback, const Reader& reader) {
  if (!field.percent && std::has_single_bit(field.bytes)) return;
  reader.say("{}={} is not a power of two; using {} instead", name, print(field), print(fallback));
  field = fallback;
}

// Reports unknown letters after a percent sign.
void check_pattern(const char* name, const char* pattern, const Reader& reader) {
  for (const char* at = strchr(pattern, '%'); at != nullptr; at = strchr(at + 2, '%')) {
    if (at[1] != '\0' && strchr("phre%", at[1]) != nullptr) continue;
    reader.say("{}={}: {} is neither %p, %h, %r nor %e; it stays as it is", name, first(pattern, kShown),
               first(at, 2));
    return;
  }
}

template <typename Value>
void set_default(const char* text, Value& value) {
  parse(text, value);
}
// Not copied as the user's texts are: a report asks for the defaults, perhaps in a signal handler.
void set_default(const char* text, Text& value) { value = text; }

// Resolves options that are valid one by one but not together.
void resolve_contradictions(Options& options, const Reader& reader) {
  const Options plain = defaults();
  require_power_of_two(options.min_block, "CUPOOL_MIN_BLOCK", plain.min_block, reader);
  require_power_of_two(options.large_round, "CUPOOL_LARGE_ROUND", plain.large_round, reader);
  if (options.segment_min.bytes > options.segment_max.bytes && !options.segment_max.percent) {
    reader.say("CUPOOL_SEGMENT_MIN={} is above CUPOOL_SEGMENT_MAX={}; using {} for both",
               print(options.segment_min), print(options.segment_max), print(options.segment_max));
    options.segment_min = options.segment_max;
  }
  if (options.min_block.bytes > options.small_limit.bytes) {
    reader.say("CUPOOL_MIN_BLOCK={} is above CUPOOL_SMALL_LIMIT={}; using the defaults for both",
               print(options.min_block), print(options.small_limit));
    options.min_block = plain.min_block;
    options.small_limit = plain.small_limit;
  }
  if (*options.only != '\0' && *options.except != '\0') {
    reader.say("CUPOOL_ONLY and CUPOOL_EXCEPT contradict each other; using CUPOOL_ONLY={}",
               first(options.only, kShown));
    options.except = plain.except;
  }
  if (options.limit.bytes < options.segment_min.bytes && !options.limit.percent &&
      !options.segment_min.percent) {
    reader.say("CUPOOL_LIMIT={} is below CUPOOL_SEGMENT_MIN={}; every block gets a segment of its own size",
               print(options.limit), print(options.segment_min));
  }
  check_pattern("CUPOOL_STATS_FILE", options.stats_file, reader);
  check_pattern("CUPOOL_METRICS_FILE", options.metrics_file, reader);
  check_pattern("CUPOOL_TRACE", options.trace, reader);
  if (options.trace_keep.bytes != 0 && *options.trace == '\0') {
    reader.say("CUPOOL_TRACE_KEEP={} has no effect without CUPOOL_TRACE, which names the file",
               print(options.trace_keep));
  }
  if (options.trace_signal != StatsSignal::kNone && *options.trace == '\0') {
    reader.say("CUPOOL_TRACE_SIGNAL has no effect without CUPOOL_TRACE, which names the file");
    options.trace_signal = plain.trace_signal;
  }
  if (options.trace_signal != StatsSignal::kNone &&
      (options.trace_signal == options.stats_signal || options.trace_keep.bytes != 0)) {
    reader.say("CUPOOL_TRACE_SIGNAL contradicts {}; ignoring CUPOOL_TRACE_SIGNAL",
               options.trace_keep.bytes != 0 ? "CUPOOL_TRACE_KEEP"
                                             : "CUPOOL_STATS_SIGNAL, which is the same signal");
    options.trace_signal = plain.trace_signal;
  }
  if (options.stacks != 0 && *options.trace == '\0' && !options.leaks && !options.check) {
    reader.say("CUPOOL_STACKS={} has no effect without CUPOOL_TRACE, CUPOOL_LEAKS or CUPOOL_CHECK",
               options.stacks);
  }
}

// Whether `text` fits `pattern`; on a mismatch the last star takes one character more.
bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;
  size_t resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace

Options defaults() {
  Options options;
#define CUPOOL_OPTION(type, field, name, fallback, low, high, doc) set_default(fallback, options.field);
#include "config/options.def"
  return options;
}

Options read_environment(const char* const* environment, Complain complain) {
  Options options = defaults();
  const Reader reader(complain);
  for (const char* const* entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || text.starts_with(kSimPrefix) || equals == std::string_view::npos)
      continue;
    take_entry(options, reader, text.substr(0, equals), *entry + equals + 1);
  }
  resolve_contradictions(options, reader);
  return options;
}

unsigned distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kMaxName);
  b = b.substr(0, kMaxName);
  unsigned row[kMaxName + 1];
  for (unsigned j = 0; j <= b.size(); ++j) row[j] = j;
  for (unsigned i = 1; i <= a.size(); ++i) {
    unsigned diagonal = row[0];
    row[0] = i;
    for (unsigned j = 1; j <= b.size(); ++j) {
      const unsigned changed = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

const char* nearest_name(std::string_view name) {
  const char* nearest = nullptr;
  // Up to half of the letters after the prefix may be wrong; beyond that a suggestion would be a guess.
  size_t best = (name.size() - std::min(name.size(), kPrefix.size())) / 2 + 1;
#define CUPOOL_OPTION(type, field, option, fallback, low, high, doc) \
  if (const unsigned d = distance(name, option); d < best) {         \
    best = d;                                                        \
    nearest = option;                                                \
  }
#include "config/options.def"
  return nearest;
}

bool matches_any(std::string_view patterns, std::string_view program) {
  while (!patterns.empty()) {
    const size_t comma = std::min(patterns.find(','), patterns.size());
    if (matches(patterns.substr(0, comma), program)) return true;
    patterns.remove_prefix(std::min(comma + 1, patterns.size()));
  }
  return false;
}

}  // namespace cupool::config
