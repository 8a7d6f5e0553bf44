// The events of events.def as structs of 64-bit words, and as a table that encoder, reader and documentation
// share. No state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cupool::trace {

enum class FieldType : uint8_t { kNumber, kBytes, kTime, kAddress, kStream, kContext, kCall, kText, kChoice };
inline constexpr uint8_t kMostFieldType = static_cast<uint8_t>(FieldType::kChoice);

// A text of an event. What does not fit is cut off.
struct Text {
  static constexpr size_t kMost = 63;
  Text() = default;
  explicit Text(std::string_view from) {
    memcpy(bytes, from.data(), from.size() < kMost ? from.size() : kMost);
  }
  std::string_view view() const { return {bytes, strnlen(bytes, sizeof bytes)}; }
  char bytes[kMost + 1] = {};
};

// The words of each choice, as an enumeration of 64 bits.
#define CUPOOL_TRACE_WORD(constant, word) constant,
#define CUPOOL_TRACE_CHOICE(choice, ...) enum class choice : uint64_t { __VA_ARGS__ };
#include "trace/events.def"
#undef CUPOOL_TRACE_WORD

namespace types {
using Number = uint64_t;
using Bytes = uint64_t;
using Time = uint64_t;
using Address = uint64_t;
using Stream = uint64_t;
using Context = uint64_t;
using Call = uint64_t;
using Text = trace::Text;
}  // namespace types

enum class Event : uint8_t {
#define CUPOOL_TRACE_EVENT(event, name, doc, ...) k##event,
#include "trace/events.def"
};
inline constexpr size_t kEvents = 0
#define CUPOOL_TRACE_EVENT(event, name, doc, ...) +1
#include "trace/events.def"
    ;

namespace told {
#define CUPOOL_TRACE_FIELD(type, name, doc) types::type name{};
#define CUPOOL_TRACE_PICK(choice, name, doc) trace::choice name{};
#define CUPOOL_TRACE_EVENT(event, name, doc, ...)                  \
  struct event {                                                   \
    static constexpr trace::Event kEvent = trace::Event::k##event; \
    __VA_ARGS__                                                    \
  };
#include "trace/events.def"
#undef CUPOOL_TRACE_FIELD
#undef CUPOOL_TRACE_PICK
}  // namespace told

// ---- The table.

struct ChoiceInfo {
  const char* name;
  const char* const* words;
  size_t count;
};
struct FieldInfo {
  const char* name;
  FieldType type;
  uint8_t choice;  // its number, of a choice
  const char* doc;
};
struct EventInfo {
  const char* name;
  const char* doc;
  const FieldInfo* fields;
  size_t count;
};

namespace detail {
enum class ChoiceNumber : uint8_t {
#define CUPOOL_TRACE_CHOICE(choice, ...) k##choice,
#include "trace/events.def"
};
#define CUPOOL_TRACE_WORD(constant, word) word,
#define CUPOOL_TRACE_CHOICE(choice, ...) inline constexpr const char* kWords##choice[] = {__VA_ARGS__};
#include "trace/events.def"
#undef CUPOOL_TRACE_WORD
#define CUPOOL_TRACE_FIELD(type, name, doc) FieldInfo{#name, FieldType::k##type, 0, doc},
#define CUPOOL_TRACE_PICK(choice, name, doc) \
  FieldInfo{#name, FieldType::kChoice, static_cast<uint8_t>(ChoiceNumber::k##choice), doc},
#define CUPOOL_TRACE_EVENT(event, name, doc, ...) inline constexpr FieldInfo kFields##event[] = {__VA_ARGS__};
#include "trace/events.def"
#undef CUPOOL_TRACE_FIELD
#undef CUPOOL_TRACE_PICK
}  // namespace detail

inline constexpr ChoiceInfo kChoiceTable[] = {
#define CUPOOL_TRACE_CHOICE(choice, ...) {#choice, detail::kWords##choice, std::size(detail::kWords##choice)},
#include "trace/events.def"
};
inline constexpr EventInfo kEventTable[kEvents] = {
#define CUPOOL_TRACE_EVENT(event, name, doc, ...) \
  {#name, doc, detail::kFields##event, std::size(detail::kFields##event)},
#include "trace/events.def"
};

inline constexpr size_t kMostFields = 16;
inline constexpr size_t words_of(FieldType type) { return type == FieldType::kText ? sizeof(Text) / 8 : 1; }
inline constexpr size_t kMostWords = [] {
  size_t most = 0;
  for (const EventInfo& event : kEventTable) {
    size_t words = 0;
    for (size_t i = 0; i < event.count; ++i) words += words_of(event.fields[i].type);
    most = words > most ? words : most;
  }
  return most;
}();

}  // namespace cupool::trace
