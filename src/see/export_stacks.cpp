// Stacks as text: for speedscope, and folded as the scripts that draw flame graphs read them.
#include <algorithm>

#include "see/exports.hpp"
#include "see/findings.hpp"
#include "tools/json.hpp"

namespace cupool::see {

using Json = tools::Answer;

void write_speedscope(std::FILE* file, const Model& model, const Holders& holders, const Picture& picture) {
  const std::vector<HolderSums> sums = sums_of(model, holders, picture);
  Json out;
  out["$schema"] = "https://www.speedscope.app/file-format-schema.json";
  out["name"] = model.about().program;
  out["exporter"] = "cupool";
  Json& frames = out["shared"]["frames"] = Json::array();
  for (const Frame& frame : holders.table()) {
    Json one = {{"name", frame.function}, {"file", frame.file.empty() ? frame.library : frame.file}};
    if (frame.line != 0) one["line"] = frame.line;
    frames.push_back(std::move(one));
  }
  Json& profiles = out["profiles"] = Json::array();
  const std::pair<const char*, uint64_t HolderSums::*> views[] = {
      {"device memory held when it was most", &HolderSums::held_bytes},
      {"device memory allocated over all of the trace", &HolderSums::bytes},
      {"device memory still held at the end", &HolderSums::left_bytes}};
  for (const auto& [name, field] : views) {
    Json samples = Json::array();
    Json weights = Json::array();
    uint64_t sum = 0;
    for (uint32_t i = 0; i < sums.size(); ++i) {
      if (sums[i].*field == 0) continue;
      samples.push_back(holders.frames(i));
      weights.push_back(sums[i].*field);
      sum += sums[i].*field;
    }
    profiles.push_back({{"type", "sampled"},
                        {"name", name},
                        {"unit", "bytes"},
                        {"startValue", 0},
                        {"endValue", sum},
                        {"samples", std::move(samples)},
                        {"weights", std::move(weights)}});
  }
  const std::string text = out.dump(-1, ' ', false, Json::error_handler_t::replace);
  fwrite(text.data(), 1, text.size(), file);
  putc('\n', file);
}

void write_folded(std::FILE* file, const Model& model, const Holders& holders, const Picture& picture) {
  const std::vector<HolderSums> sums = sums_of(model, holders, picture);
  for (uint32_t i = 0; i < sums.size(); ++i) {
    if (sums[i].held_bytes == 0) continue;
    std::string line;
    for (const uint32_t frame : holders.frames(i)) {
      std::string text = holders.table()[frame].text();
      std::replace(text.begin(), text.end(), ';', ':');
      line += (line.empty() ? "" : ";") + text;
    }
    say(file, "{} {}\n", line, sums[i].held_bytes);
  }
}

}  // namespace cupool::see
