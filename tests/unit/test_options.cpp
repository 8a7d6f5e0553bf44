// Options: defaults hold, good values are taken, and every bad one gives one sentence and changes nothing.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "config/parse.hpp"
#include "config/print.hpp"

using namespace cupool;
using namespace cupool::config;

namespace {

std::vector<std::string> sentences;

Options read(std::vector<const char*> entries) {
  sentences.clear();
  entries.push_back(nullptr);
  return read_environment(entries.data(), [](const char* sentence) { sentences.emplace_back(sentence); });
}

// Every option as one text, so that two sets can be compared field by field.
std::string text_of(const Options& options) {
  std::string text;
#define CUPOOL_OPTION(type, field, name, fallback, low, high, doc) \
  text.append(print(options.field).text).append(";");
#include "config/options.def"
  return text;
}

}  // namespace

TEST_CASE("an environment without our names gives the defaults and no sentence") {
  CHECK(text_of(read({"PATH=/bin", "HOME=/", "CUPOOLX=1"})) == text_of(defaults()));
  CHECK(sentences.empty());
}

TEST_CASE("every default is a value its own option accepts") {
  std::vector<std::string> entries;
#define CUPOOL_OPTION(type, field, name, fallback, low, high, doc) \
  entries.emplace_back(std::string(name) + "=" + fallback);
#include "config/options.def"
  std::vector<const char*> pointers;
  for (const auto& entry : entries) pointers.push_back(entry.c_str());
  CHECK(text_of(read(pointers)) == text_of(defaults()));
  CHECK(sentences.empty());
}

TEST_CASE("good values are taken") {
  const Options options = read({"CUPOOL_BACKEND=off", "CUPOOL_FREE=sync", "CUPOOL_LIMIT=20%",
                                "CUPOOL_DECAY_MS=250", "CUPOOL_SPLIT=no", "CUPOOL_EXCEPT=ncu,nsys*"});
  CHECK(sentences.empty());
  CHECK(options.backend == Backend::kOff);
  CHECK(options.free == FreeMode::kSync);
  CHECK(options.limit == Size{2000, true});
  CHECK(options.decay_ms == 250);
  CHECK_FALSE(options.split);
  CHECK(std::string(options.except) == "ncu,nsys*");
}

TEST_CASE("junk in any option gives one sentence that names it and leaves the default") {
  visit(defaults(), [](const OptionInfo& info, const char*) {
    if (std::string(info.type) == "text") return;  // takes any text
    const std::string entry = std::string(info.name) + "=\x01junk\xff";
    const Options options = read({entry.c_str()});
    INFO(info.name);
    REQUIRE(sentences.size() == 1);
    CHECK(sentences[0].find(info.name) != std::string::npos);
    CHECK(text_of(options) == text_of(defaults()));
  });
}

TEST_CASE("a value or a name of several lines gives a sentence of one") {
  read({"CUPOOL_LIMIT=1\ncupool: 2", "CUPOOL_LI\nMIT=1"});
  REQUIRE(sentences.size() == 2);
  for (const std::string& sentence : sentences) CHECK(sentence.find('\n') == std::string::npos);
}

TEST_CASE("a value outside its range gives one sentence and leaves the default") {
  CHECK(text_of(read({"CUPOOL_DECAY_MS=86400001"})) == text_of(defaults()));
  CHECK(sentences.size() == 1);
  CHECK(text_of(read({"CUPOOL_MIN_BLOCK=1"})) == text_of(defaults()));
  CHECK(sentences.size() == 1);
  CHECK(text_of(read({"CUPOOL_MIN_BLOCK=1000"})) == text_of(defaults()));
  CHECK(sentences.size() == 1);
}

TEST_CASE("an unknown name is reported with the nearest known one") {
  read({"CUPOOL_BACKENDS=off"});
  REQUIRE(sentences.size() == 1);
  CHECK(sentences[0].find("did you mean CUPOOL_BACKEND?") != std::string::npos);
  read({"CUPOOL_SOMETHING_ELSE_ENTIRELY=1"});
  CHECK(sentences.size() == 1);
}

TEST_CASE("the simulated driver's names are skipped") {
  read({"CUPOOL_SIM_SEED=7", "CUPOOL_SIM_NONSENSE=1"});
  CHECK(sentences.empty());
}

TEST_CASE("options that contradict each other give one sentence and a usable pair") {
  const Options options = read({"CUPOOL_SEGMENT_MIN=1G", "CUPOOL_SEGMENT_MAX=4M"});
  CHECK(sentences.size() == 1);
  CHECK(options.segment_min.bytes <= options.segment_max.bytes);
  read({"CUPOOL_ONLY=a", "CUPOOL_EXCEPT=b"});
  CHECK(sentences.size() == 1);
}

TEST_CASE("program patterns match whole names with star and question mark") {
  CHECK(matches_any("python*", "python3.11"));
  CHECK(matches_any("a,b?", "bc"));
  CHECK(matches_any("*x*y", "axbxcy"));
  CHECK_FALSE(matches_any("", "x"));
  CHECK_FALSE(matches_any("python", "python3"));
  CHECK_FALSE(matches_any("?", ""));
}
