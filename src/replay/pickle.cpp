// See pickle.hpp. The letters are those of Python's pickletools.
#include "replay/pickle.hpp"

#include <cstring>
#include <limits>

#include "base/say.hpp"

namespace cupool::replay {

namespace {
constexpr size_t kMostValues = std::numeric_limits<uint32_t>::max() - 1;
}

bool Pickle::fail(const std::string& why) {
  error_ = make_text("{} (byte {} of the pickle)", why, at_);
  return false;
}

bool Pickle::read(std::string_view bytes) {
  bytes_ = bytes;
  values_.push_back({});  // a None, for whatever is not there
  while (!is_done_) {
    if (at_ == bytes_.size()) return fail("it ends too early");
    if (!step(static_cast<uint8_t>(bytes_[at_++]))) return false;
  }
  memo_.clear();
  return pop(&root_);
}

// ---- Bytes.

bool Pickle::take(size_t bytes, std::string_view* out) {
  if (bytes > bytes_.size() - at_) return fail("it ends too early");
  *out = bytes_.substr(at_, bytes);
  at_ += bytes;
  return true;
}

bool Pickle::take_number(size_t bytes, uint64_t* out) {
  std::string_view raw;
  if (!take(bytes, &raw)) return false;
  *out = 0;
  memcpy(out, raw.data(), raw.size());
  return true;
}

// ---- The stack.

bool Pickle::push(const Value& value) {
  if (values_.size() >= kMostValues) return fail("it has too many values");
  stack_.push_back(static_cast<Ref>(values_.size()));
  values_.push_back(value);
  return true;
}

bool Pickle::push_number(size_t bytes, bool is_signed) {
  uint64_t number = 0;
  if (!take_number(bytes, &number)) return false;
  if (is_signed && bytes == 4) number = static_cast<uint64_t>(int64_t{static_cast<int32_t>(number)});
  return push({Kind::kNumber, number, 0});
}

// A whole number of any length. What has no room in 64 bits is no size and no address.
bool Pickle::push_long(uint64_t bytes) {
  std::string_view raw;
  if (!take(bytes, &raw)) return false;
  if (raw.size() > 9 || (raw.size() == 9 && raw[8] != 0)) return push({});
  uint64_t number = 0;
  memcpy(&number, raw.data(), std::min<size_t>(raw.size(), 8));
  const bool is_negative = !raw.empty() && raw.size() <= 8 && (raw.back() & 0x80) != 0;
  if (is_negative && raw.size() < 8) number |= ~uint64_t{0} << (8 * raw.size());
  return push({Kind::kNumber, number, 0});
}

bool Pickle::push_text(size_t bytes_of_length) {
  uint64_t length = 0;
  std::string_view raw;
  if (!take_number(bytes_of_length, &length)) return false;
  const size_t begin = at_;
  if (!take(length, &raw)) return false;
  return push({Kind::kText, begin, length});
}

// The last `count` values of the stack as one.
bool Pickle::push_items(Kind kind, size_t count) {
  if (stack_.size() < count) return fail("its stack is empty");
  for (size_t i = stack_.size() - count; i < stack_.size(); ++i) {
    if (values_[stack_[i]].kind == Kind::kMark) return fail("a mark stands among its values");
  }
  items_.emplace_back(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
  stack_.resize(stack_.size() - count);
  return push({kind, items_.size() - 1, 0});
}

bool Pickle::pop(Ref* out) {
  if (stack_.empty() || values_[stack_.back()].kind == Kind::kMark) return fail("its stack is empty");
  *out = stack_.back();
  stack_.pop_back();
  return true;
}

bool Pickle::pop_to_mark(std::vector<Ref>* out) {
  size_t begin = stack_.size();
  while (begin > 0 && values_[stack_[begin - 1]].kind != Kind::kMark) --begin;
  if (begin == 0) return fail("a mark is missing");
  out->assign(stack_.begin() + static_cast<ptrdiff_t>(begin), stack_.end());
  stack_.resize(begin - 1);
  return true;
}

bool Pickle::extend(Kind kind, const std::vector<Ref>& more) {
  if (stack_.empty() || values_[stack_.back()].kind != kind)
    return fail(kind == Kind::kList ? "it adds to what is no list" : "it adds to what is no dictionary");
  if (kind == Kind::kDictionary && more.size() % 2 != 0) return fail("a key has no value");
  auto& items = items_[values_[stack_.back()].word];
  items.insert(items.end(), more.begin(), more.end());
  return true;
}

bool Pickle::remember(uint64_t place) {
  if (stack_.empty()) return fail("its stack is empty");
  memo_[place] = stack_.back();
  return true;
}

bool Pickle::recall(uint64_t place) {
  const auto found = memo_.find(place);
  if (found == memo_.end()) return fail("it refers to what is not there");
  stack_.push_back(found->second);
  return true;
}

// ---- One operation.

bool Pickle::step(uint8_t code) {
  uint64_t number = 0;
  Ref value = 0;
  std::vector<Ref> values;
  switch (code) {
    case 0x80:  // PROTO
      if (!take_number(1, &number)) return false;
      return number >= 2 && number <= 5 ? true : fail(make_text("its protocol is {}, not 2 to 5", number));
    case 0x95:  // FRAME
      return take_number(8, &number);
    case '.':
      is_done_ = true;
      return true;
    case '(':
      return push({Kind::kMark, 0, 0});
    case '0':  // POP
      if (stack_.empty()) return fail("its stack is empty");
      stack_.pop_back();
      return true;
    case '1':  // POP_MARK
      return pop_to_mark(&values);
    case '2':  // DUP
      if (stack_.empty()) return fail("its stack is empty");
      stack_.push_back(stack_.back());
      return true;
    case 'N':
      return push({});
    case 0x88:
    case 0x89:  // True, False
      return push({Kind::kBool, code == 0x88 ? uint64_t{1} : 0, 0});
    case 'J':
      return push_number(4, true);
    case 'K':
      return push_number(1, false);
    case 'M':
      return push_number(2, false);
    case 0x8a:  // LONG1
      return take_number(1, &number) && push_long(number);
    case 0x8b:  // LONG4
      return take_number(4, &number) && push_long(number);
    case 'G': {  // (The highest byte first; its value plays no part.)
      return take_number(8, &number) && push({Kind::kReal, number, 0});
    }
    case 'U':
    case 'C':
    case 0x8c:  // short texts and bytes
      return push_text(1);
    case 'T':
    case 'B':
    case 'X':
      return push_text(4);
    case 0x8d:
    case 0x8e:
    case 0x96:
      return push_text(8);
    case ']':
    case 0x8f:  // an empty set
    case ')':
      return push_items(Kind::kList, 0);
    case '}':
      return push_items(Kind::kDictionary, 0);
    case 0x85:
    case 0x86:
    case 0x87:
      return push_items(Kind::kList, code - 0x84U);
    case 't':
    case 'l':
    case 0x91:  // a tuple, a list, a frozen set
      if (!pop_to_mark(&values)) return false;
      items_.push_back(std::move(values));
      return push({Kind::kList, items_.size() - 1, 0});
    case 'd':
      if (!pop_to_mark(&values)) return false;
      if (values.size() % 2 != 0) return fail("a key has no value");
      items_.push_back(std::move(values));
      return push({Kind::kDictionary, items_.size() - 1, 0});
    case 'a':
      return pop(&value) && extend(Kind::kList, {value});
    case 'e':
    case 0x90:  // of a set
      return pop_to_mark(&values) && extend(Kind::kList, values);
    case 's': {
      Ref key = 0;
      return pop(&value) && pop(&key) && extend(Kind::kDictionary, {key, value});
    }
    case 'u':
      return pop_to_mark(&values) && extend(Kind::kDictionary, values);
    case 'q':
      return take_number(1, &number) && remember(number);
    case 'r':
      return take_number(4, &number) && remember(number);
    case 0x94:  // MEMOIZE
      return remember(memo_.size());
    case 'h':
      return take_number(1, &number) && recall(number);
    case 'j':
      return take_number(4, &number) && recall(number);
    case 'c':
    case 0x93:
    case 'R':
    case 'b':
    case 'i':
    case 'o':
    case 0x81:
    case 0x92:
    case 'P':
    case 'Q':
    case 0x82:
    case 0x83:
    case 0x84:
      return fail("it wants to make an object, which is not done here: it is no snapshot of memory");
    default:
      return fail(make_text("it has an unknown operation, {}", code));
  }
}

// ---- What it holds.

int64_t Pickle::number(Ref value) const {
  const Value& one = values_[value];
  return one.kind == Kind::kNumber || one.kind == Kind::kBool ? static_cast<int64_t>(one.word) : 0;
}

std::string_view Pickle::text(Ref value) const {
  const Value& one = values_[value];
  return one.kind == Kind::kText ? bytes_.substr(one.word, one.length) : std::string_view{};
}

const std::vector<Pickle::Ref>& Pickle::items(Ref value) const {
  static const std::vector<Ref> none;
  const Value& one = values_[value];
  return one.kind == Kind::kList || one.kind == Kind::kDictionary ? items_[one.word] : none;
}

Pickle::Ref Pickle::at(Ref dictionary, std::string_view key) const {
  if (values_[dictionary].kind != Kind::kDictionary) return 0;
  const auto& all = items(dictionary);
  // (Of a key that is given twice the later value counts.)
  for (size_t i = all.size(); i >= 2; i -= 2) {
    if (values_[all[i - 2]].kind == Kind::kText && text(all[i - 2]) == key) return all[i - 1];
  }
  return 0;
}

}  // namespace cupool::replay
