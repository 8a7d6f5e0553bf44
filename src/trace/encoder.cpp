// See encoder.hpp.
#include "trace/encoder.hpp"

namespace cupool::trace {

bool Encoder::add(Event event, uint64_t time, const uint64_t* words) {
  if (static_cast<size_t>(end_ - at_) < kMostEvent) return false;
  const EventInfo& info = kEventTable[static_cast<size_t>(event)];
  auto& numbers = numbers_[static_cast<size_t>(event)];
  uint8_t fields[kMostEvent];
  uint8_t* out = fields;
  uint64_t changed = 0;
  for (size_t i = 0; i < info.count; ++i) {
    const FieldType type = info.fields[i].type;
    const int shared = shared_place(type);
    if (type == FieldType::kText) {
      Text text;
      memcpy(text.bytes, words, sizeof text.bytes);
      words += words_of(type);
      const std::string_view view = text.view();
      if (view.empty()) continue;
      changed |= uint64_t{1} << i;
      out = put_varint(out, view.size());
      memcpy(out, view.data(), view.size());
      out += view.size();
      continue;
    }
    const uint64_t value = *words++;
    uint64_t& last = shared >= 0 ? shared_[static_cast<size_t>(shared)] : numbers[i];
    if (value == last) continue;
    changed |= uint64_t{1} << i;
    out = put_varint(out, shared >= 0 ? fold(static_cast<int64_t>(value - last)) : value);
    last = value;
  }
  at_ = put_varint(at_, static_cast<uint64_t>(event));
  at_ = put_varint(at_, fold(static_cast<int64_t>(time - time_)));
  at_ = put_varint(at_, changed);
  memcpy(at_, fields, static_cast<size_t>(out - fields));
  at_ += out - fields;
  time_ = time;
  ++count_;
  return true;
}

}  // namespace cupool::trace
