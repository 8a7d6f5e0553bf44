// A trace as a profile of pprof: of each stack what it allocated over all of the trace, and what it held when
// device memory was most. The form asks for gzip: its blocks are stored as they are.
#include <array>
#include <map>

#include "see/exports.hpp"
#include "see/findings.hpp"
#include "see/protobuf.hpp"

namespace cupool::see {
namespace {

uint32_t crc32(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? value >> 1 ^ 0xEDB88320 : value >> 1;
      out[i] = value;
    }
    return out;
  }();
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<uint8_t>(c)) & 0xFF];
  return ~crc;
}

void write_gzip(std::FILE* file, std::string_view bytes) {
  const auto number = [&](uint64_t value, int size) {
    for (int i = 0; i < size; ++i) putc(static_cast<int>(value >> (8 * i) & 0xFF), file);
  };
  // The head: magic, deflate, no flags, no time, no system.
  number(0x8b1f, 2);
  number(8, 1);
  number(0, 6);
  number(0xFF, 1);
  constexpr size_t kMost = 0xFFFF;
  for (size_t at = 0; at == 0 || at < bytes.size(); at += kMost) {
    const std::string_view block = bytes.substr(at, kMost);
    number(at + kMost >= bytes.size() ? 1 : 0, 1);
    number(block.size(), 2);
    number(~block.size(), 2);
    fwrite(block.data(), 1, block.size(), file);
  }
  number(crc32(bytes), 4);
  number(bytes.size(), 4);
}

class Texts {
 public:
  Texts() { number(""); }
  uint64_t number(const std::string& text) {
    const auto [at, is_new] = numbers_.try_emplace(text, all_.size());
    if (is_new) all_.push_back(text);
    return at->second;
  }
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::map<std::string, uint64_t> numbers_;
  std::vector<std::string> all_;
};

}  // namespace

void write_pprof(std::FILE* file, const Model& model, const Holders& holders, const Picture& picture) {
  Texts texts;
  Message out;
  const std::pair<const char*, const char*> types[] = {{"alloc_objects", "count"},
                                                       {"alloc_space", "bytes"},
                                                       {"inuse_objects", "count"},
                                                       {"inuse_space", "bytes"}};
  for (const auto& [type, unit] : types)
    out.message(1, Message().number(1, texts.number(type)).number(2, texts.number(unit)));
  const std::vector<HolderSums> sums = sums_of(model, holders, picture);
  for (uint32_t i = 0; i < sums.size(); ++i) {
    const HolderSums& one = sums[i];
    if (one.calls == 0 && one.held_bytes == 0) continue;
    const std::vector<uint32_t>& frames = holders.frames(i);
    std::vector<uint64_t> places;
    for (auto at = frames.rbegin(); at != frames.rend(); ++at) places.push_back(uint64_t{*at} + 1);
    const uint64_t values[] = {one.calls, one.bytes, one.held_blocks, one.held_bytes};
    out.message(2, Message().packed(1, places).packed(2, values));
  }
  std::map<std::string, uint64_t> libraries;
  for (const Frame& frame : holders.table()) {
    const auto [at, is_new] = libraries.try_emplace(frame.library, libraries.size() + 1);
    if (!is_new) continue;
    out.message(3, Message().number(1, at->second).number(5, texts.number(frame.library)).number(7, 1));
  }
  for (size_t i = 0; i < holders.table().size(); ++i) {
    const Frame& frame = holders.table()[i];
    out.message(4, Message()
                       .number(1, i + 1)
                       .number(2, libraries[frame.library])
                       .message(4, Message().number(1, i + 1).number(2, frame.line)));
    out.message(5, Message()
                       .number(1, i + 1)
                       .number(2, texts.number(frame.function))
                       .number(3, texts.number(frame.function))
                       .number(4, texts.number(frame.file)));
  }
  const tools::TraceAbout& about = model.about();
  out.number(9, about.wall + model.began() - about.monotonic);
  out.number(10, model.ns());
  out.message(11, Message().number(1, texts.number("space")).number(2, texts.number("bytes")));
  out.number(12, 1);
  out.number(14, texts.number("inuse_space"));
  for (const std::string& text : texts.all()) out.text(6, text);
  write_gzip(file, out.bytes());
}

}  // namespace cupool::see
