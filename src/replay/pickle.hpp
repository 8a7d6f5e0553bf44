// Reads a pickle of plain values: None, booleans, numbers, texts, lists, tuples, sets and dictionaries, in
// protocols 2 to 5. Whatever would call or make anything else is refused, so no pickle can do more than be
// read. Values lie in one table and refer to each other by number, so neither depth nor cycles need a stack;
// texts are views of the bytes that were read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cupool::replay {

class Pickle {
 public:
  using Ref = uint32_t;
  enum class Kind : uint8_t { kNone, kBool, kNumber, kReal, kText, kList, kDictionary, kMark };

  // False: error() says why. pre: `bytes` outlives this.
  bool read(std::string_view bytes);
  const std::string& error() const { return error_; }

  Ref root() const { return root_; }
  Kind kind(Ref value) const { return values_[value].kind; }
  // 0 or empty of a value of another kind.
  int64_t number(Ref value) const;
  std::string_view text(Ref value) const;
  // Of a list, tuple or set; of a dictionary keys and values in turn.
  const std::vector<Ref>& items(Ref value) const;
  // The value of a key, or a None.
  Ref at(Ref dictionary, std::string_view key) const;

 private:
  struct Value {
    Kind kind = Kind::kNone;
    uint64_t word = 0;  // a number, the offset of a text, the place of items
    uint64_t length = 0;
  };

  bool fail(const std::string& why);
  bool step(uint8_t code);
  bool take(size_t bytes, std::string_view* out);
  bool take_number(size_t bytes, uint64_t* out);
  bool push(const Value& value);
  bool push_number(size_t bytes, bool is_signed);
  bool push_long(uint64_t bytes);
  bool push_text(size_t bytes_of_length);
  bool push_items(Kind kind, size_t count);
  bool pop(Ref* out);
  bool pop_to_mark(std::vector<Ref>* out);
  bool extend(Kind kind, const std::vector<Ref>& more);
  bool remember(uint64_t place);
  bool recall(uint64_t place);

  std::string_view bytes_;
  size_t at_ = 0;
  std::vector<Value> values_;
  std::vector<std::vector<Ref>> items_;
  std::vector<Ref> stack_;
  std::unordered_map<uint64_t, Ref> memo_;
  Ref root_ = 0;
  bool is_done_ = false;
  std::string error_;
};

}  // namespace cupool::replay
