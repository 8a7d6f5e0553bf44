// Drives a fuzz target without a fuzzer: main CASES SEED... tries each seed, then so many that were changed
// in a few places, which are the same each time. The case at which a target ended the program is said on
// stderr.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

uint64_t at_case = 0;

void say_case(int signal_number) {
  char text[64];
  const int length = snprintf(text, sizeof text, "signal %d at case %llu\n", signal_number,
                              static_cast<unsigned long long>(at_case));
  if (write(2, text, static_cast<size_t>(length)) < 0) _exit(1);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

uint64_t any_number() {
  static uint64_t state = 88172645463325252;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}
size_t below(size_t most) { return most == 0 ? 0 : static_cast<size_t>(any_number() % most); }

// What is at the edge of something.
uint64_t telling_number() {
  static constexpr uint64_t kNumbers[] = {0,          1,          0x7f,       0x80,       0xff,
                                          0xffff,     0x7fffffff, 0x80000000, 0xffffffff, uint64_t{1} << 32,
                                          1ull << 46, 1ull << 62, 1ull << 63, ~0ull,      ~0ull - 1};
  return below(3) == 0 ? any_number() : kNumbers[below(std::size(kNumbers))];
}

void change(Bytes& bytes, const std::vector<Bytes>& seeds) {
  constexpr size_t kMost = 1 << 16;
  const size_t size = bytes.size();
  const size_t at = below(size + 1);
  const auto place = bytes.begin() + static_cast<ptrdiff_t>(at);
  const size_t rest = size - at;
  switch (below(8)) {
    case 0:
      if (rest != 0) bytes[at] ^= static_cast<uint8_t>(1 << below(8));
      break;
    case 1:
      if (rest != 0) bytes[at] = static_cast<uint8_t>(telling_number());
      break;
    case 2: {
      const uint64_t number = telling_number();
      memcpy(bytes.data() + at, &number, std::min(rest, size_t{1} << below(4)));
      break;
    }
    case 3:
      bytes.erase(place, place + static_cast<ptrdiff_t>(below(std::min<size_t>(rest, 64) + 1)));
      break;
    case 4: {
      Bytes more(below(16) + 1);
      for (uint8_t& one : more) one = static_cast<uint8_t>(any_number());
      bytes.insert(place, more.begin(), more.end());
      break;
    }
    case 5: {
      // A piece of a seed, there or instead of what is there.
      const Bytes& from = seeds[below(seeds.size())];
      const size_t begin = below(from.size());
      const size_t count = below(std::min<size_t>(from.size() - begin, 512) + 1);
      const Bytes piece(from.begin() + static_cast<ptrdiff_t>(begin),
                        from.begin() + static_cast<ptrdiff_t>(begin + count));
      const auto end = place + static_cast<ptrdiff_t>(below(2) == 0 ? 0 : std::min(rest, count));
      bytes.insert(bytes.erase(place, end), piece.begin(), piece.end());
      break;
    }
    case 6: {
      const std::string number = std::to_string(telling_number());
      bytes.insert(place, number.begin(), number.end());
      break;
    }
    default:
      if (below(8) == 0) bytes.resize(at);
  }
  if (bytes.size() > kMost) bytes.resize(kMost);
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 2;
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, say_case);
  std::vector<Bytes> seeds;
  for (int i = 2; i < count; ++i) {
    std::ifstream file(words[i], std::ios::binary);
    if (!file) return 2;
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(seeds.back().data(), seeds.back().size());
  }
  const uint64_t cases = strtoull(words[1], nullptr, 10);
  for (at_case = 1; at_case <= cases; ++at_case) {
    Bytes bytes = seeds[below(seeds.size())];
    for (size_t changes = 1 + below(6); changes > 0; --changes) change(bytes, seeds);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  printf("%llu cases\n", static_cast<unsigned long long>(cases));
  return 0;
}
