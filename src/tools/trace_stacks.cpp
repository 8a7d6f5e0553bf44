// See trace_stacks.hpp.
#include "tools/trace_stacks.hpp"

#include <algorithm>
#include <string_view>

#include "tools/trace_bytes.hpp"
#include "trace/records.hpp"

namespace cupool::tools {
namespace {

constexpr size_t kMostModules = 1 << 16;
constexpr size_t kMostMaps = 64;

std::string hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char byte : bytes) {
    out += kDigits[static_cast<unsigned char>(byte) >> 4];
    out += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return out;
}

// Calls take(number, fields) for each record; that may leave fields unread.
template <typename Take>
bool for_each_record(const uint8_t* content, size_t bytes, uint32_t count, Take&& take) {
  TraceBytes in(content, bytes);
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t what = in.number();
    TraceBytes fields = in.part(in.number());
    if (!in.is_good() || !take(what, fields) || !fields.is_good()) return false;
  }
  return in.is_over();
}

}  // namespace

bool TraceStacks::read_stacks(const uint8_t* content, size_t bytes, uint32_t count) {
  return for_each_record(content, bytes, count, [&](uint64_t what, TraceBytes& in) {
    if (what > static_cast<uint64_t>(trace::StackRecord::kStack)) return true;
    const uint64_t id = in.number();
    if (what == static_cast<uint64_t>(trace::StackRecord::kText)) {
      texts_.try_emplace(id, in.text(trace::kMostRecordText));
    } else if (what == static_cast<uint64_t>(trace::StackRecord::kPlace)) {
      TracePlace& place = places_[id];
      const auto text = [&] {
        const auto found = texts_.find(in.number());
        return found == texts_.end() ? std::string_view() : found->second;
      };
      place.function = text();
      place.file = text();
      place.line = in.number();
    } else if (what == static_cast<uint64_t>(trace::StackRecord::kStack)) {
      Stack& stack = stacks_[id];
      stack.map = in.number();
      const uint64_t frames = in.number();
      if (frames > trace::kMostFrames || frames > in.left()) return false;
      stack.frames.clear();
      uint64_t address = 0;
      for (uint64_t i = 0; i < frames; ++i) {
        const uint64_t value = in.number();
        if ((value & 1) != 0) {
          stack.frames.push_back(value >> 1 | trace::kIsPlace);
        } else {
          address += static_cast<uint64_t>(trace::unfold(value >> 1));
          stack.frames.push_back(address & ~trace::kIsPlace);
        }
      }
    }
    return true;
  });
}

bool TraceStacks::read_modules(const uint8_t* content, size_t bytes, uint32_t count) {
  maps_.clear();
  return for_each_record(content, bytes, count, [&](uint64_t what, TraceBytes& in) {
    if (what > static_cast<uint64_t>(trace::ModuleRecord::kGone)) return true;
    const uint64_t id = in.number();
    const uint64_t map = in.number();
    if (what == static_cast<uint64_t>(trace::ModuleRecord::kGone)) {
      if (const auto found = modules_.find(id); found != modules_.end()) found->second.gone = map;
    } else if (what == static_cast<uint64_t>(trace::ModuleRecord::kModule)) {
      if (modules_.size() >= kMostModules) return false;
      TraceModule& module = modules_[id];
      module.id = id;
      module.map = map;
      module.gone = ~uint64_t{0};
      module.begin = in.number();
      module.end = module.begin + in.number();
      module.bias = in.number();
      module.build_id = hex(in.text(trace::kMostRecordText));
      module.path = in.text(trace::kMostRecordText);
    }
    return true;
  });
}

const TraceModule* TraceStacks::module_at(uint64_t address, uint64_t map) const {
  auto found = maps_.find(map);
  if (found == maps_.end()) {
    if (maps_.size() >= kMostMaps) maps_.clear();
    found = maps_.try_emplace(map).first;
    for (const auto& [id, module] : modules_) {
      if (module.map <= map && map < module.gone) found->second[module.begin] = &module;
    }
  }
  auto at = found->second.upper_bound(address);
  if (at == found->second.begin()) return nullptr;
  const TraceModule* const module = (--at)->second;
  return address < module->end ? module : nullptr;
}

std::vector<TraceFrame> TraceStacks::frames(uint64_t id) const {
  std::vector<TraceFrame> out;
  const auto stack = stacks_.find(id);
  if (stack == stacks_.end()) return out;
  static const TracePlace kUnknown;
  for (const uint64_t frame : stack->second.frames) {
    TraceFrame& now = out.emplace_back();
    if ((frame & trace::kIsPlace) != 0) {
      const auto place = places_.find(frame & ~trace::kIsPlace);
      now.place = place == places_.end() ? &kUnknown : &place->second;
      continue;
    }
    now.address = frame - std::min<uint64_t>(frame, 1);
    now.module = module_at(now.address, stack->second.map);
    now.offset = now.module == nullptr ? 0 : now.address - now.module->bias;
  }
  return out;
}

}  // namespace cupool::tools
