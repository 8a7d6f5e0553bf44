// Writes a trace of a training that never ran, of any number of events: make_trace FILE EVENTS [hostile|wild
// SEED]. The same bytes each time. Steps of a forward pass that keeps what it allocates, a backward pass that
// gives it back and an optimizer; temporary memory in between; two threads; segments of a pool that grows;
// waits, phases, a failure. `hostile`: names that would be markup, script or the end of a line where they are
// not made safe.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trace/encoder.hpp"
#include "trace/events.hpp"
#include "trace/format.hpp"
#include "trace/records.hpp"

namespace {

using namespace cupool::trace;

constexpr const char* kCalls[] = {"cuMemAlloc_v2",   "cuMemFree_v2",   "cuStreamSynchronize",
                                  "cuMemcpyDtoH_v2", "cuLaunchKernel", "cuMemAllocHost_v2",
                                  "cuModuleLoadData"};
enum Call : uint64_t { kAlloc, kFree, kSynchronize, kCopy, kLaunch, kAllocHost, kLoad };
constexpr uint64_t kBegin = 1'000'000'000'000;
// Until the first event.
constexpr uint64_t kIdle = 3'000'000'000;

class File {
 public:
  File(const char* path, uint64_t events, bool is_hostile)
      : file_(fopen(path, "we")), most_(events), is_hostile_(is_hostile), content_(kMostContent) {
    if (file_ == nullptr) exit(1);
    about();
    stacks();
    open(kFirstThread);
  }
  ~File() {
    close();
    fclose(file_);
  }
  bool is_full() const { return told_ >= most_; }
  bool is_hostile() const { return is_hostile_; }
  uint64_t now() const { return now_; }
  void pass(uint64_t ns) { now_ += ns; }

  template <typename Told>
  void tell(const Told& what, uint32_t thread = kFirstThread) {
    if (thread != head_.thread || !encoder_.add(Told::kEvent, now_, words(what))) {
      close();
      open(thread);
      encoder_.add(Told::kEvent, now_, words(what));
    }
    ++told_;
  }
  static constexpr uint32_t kFirstThread = 4711;

 private:
  template <typename Told>
  static const uint64_t* words(const Told& what) {
    return reinterpret_cast<const uint64_t*>(&what);
  }
  void open(uint32_t thread) {
    head_ = {};
    head_.kind = static_cast<uint16_t>(BlockKind::kEvents);
    head_.time = now_;
    head_.round = now_;
    head_.thread = thread;
    encoder_.begin(content_, now_);
  }
  void close() {
    head_.bytes = static_cast<uint32_t>(encoder_.size());
    head_.count = encoder_.count();
    if (head_.count != 0) write(content_.data());
  }
  void write(const uint8_t* content) {
    head_.sequence = sequence_++;
    head_.checksum = checksum_of(head_, content);
    fwrite(&head_, 1, sizeof head_, file_);
    fwrite(content, 1, head_.bytes, file_);
  }
  void about() {
    std::string out;
    const auto number = [&](uint64_t value) {
      uint8_t bytes[kMostVarint];
      out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(put_varint(bytes, value) - bytes));
    };
    const auto text = [&](std::string_view value) {
      number(value.size());
      out += value;
    };
    number(kFormatVersion);
    number(kBegin);
    number(1'700'000'000'000'000'000);
    number(4711);
    text(is_hostile_ ? "</script><script>document.title='taken'</script>" : "train.py");
    text(is_hostile_ ? "<img src=x onerror=document.title='taken'>" : "node1");
    text("");
    text("0.3.0");
    number(std::size(kChoiceTable));
    for (const ChoiceInfo& choice : kChoiceTable) {
      text(choice.name);
      number(choice.count);
      for (size_t i = 0; i < choice.count; ++i)
        text(is_hostile_ ? std::string(choice.words[i]) + (i == 5 ? "<b>\n\x1b[31m" : "") : choice.words[i]);
    }
    number(kEvents);
    for (const EventInfo& event : kEventTable) {
      text(event.name);
      number(event.count);
      for (size_t i = 0; i < event.count; ++i) {
        text(event.fields[i].name);
        number(static_cast<uint64_t>(event.fields[i].type));
        number(event.fields[i].choice);
      }
    }
    number(std::size(kCalls));
    for (const char* const call : kCalls)
      text(is_hostile_ ? std::string(call) + "\"'><script>document.title='taken'</script>\n\xff;" : call);
    head_ = {};
    head_.kind = static_cast<uint16_t>(BlockKind::kAbout);
    head_.time = head_.round = kBegin;
    head_.bytes = static_cast<uint32_t>(out.size());
    write(reinterpret_cast<const uint8_t*>(out.data()));
  }

  // What the trace's stacks are, from the innermost frame: two functions of a library, then places of a
  // script.
  void stacks() {
    struct Place {
      const char* function;
      const char* file;
      uint64_t line;
    };
    static constexpr Place kPlaces[] = {
        {"<module>", "train.py", 120},         {"main", "train.py", 88},
        {"load_weights", "model.py", 31},      {"train_step", "train.py", 61},
        {"forward", "model.py", 57},           {"Block.forward", "model.py", 112},
        {"Attention.forward", "model.py", 78}, {"MLP.forward", "model.py", 96},
        {"softmax", "functional.py", 1840},    {"gelu", "functional.py", 1702},
        {"dropout", "functional.py", 1260},    {"backward", "site-packages/engine.py", 206},
        {"AdamW.step", "optim.py", 44},        {"prefetch", "data.py", 19},
    };
    static constexpr std::initializer_list<uint64_t> kStacks[] = {
        {2, 1, 0},
        {5, 4, 3, 1, 0},
        {8, 6, 5, 4, 3, 1, 0},
        {9, 7, 5, 4, 3, 1, 0},
        {10, 7, 5, 4, 3, 1, 0},
        {11, 3, 1, 0},
        {13},
        {12, 3, 1, 0},
    };
    constexpr uint64_t kLibrary = 0x7f00'0000'0000;
    Records records;
    const auto put = [&](BlockKind kind) {
      head_ = {};
      head_.kind = static_cast<uint16_t>(kind);
      head_.time = head_.round = now_;
      head_.bytes = static_cast<uint32_t>(records.size());
      head_.count = records.count();
      write(content_.data());
    };
    records.begin(content_);
    records.module({1, 0, kLibrary, kLibrary + (1 << 24), kLibrary, "\x12\x34",
                    is_hostile_ ? "/lib/<script>alert(1)</script>.so" : "/usr/lib/libtensor.so"});
    put(BlockKind::kModules);
    records.begin(content_);
    uint64_t text = 0;
    uint64_t place = 0;
    for (const Place& one : kPlaces) {
      records.text(++text, is_hostile_
                               ? std::string("</script><img src=x onerror=alert(1)>;\n\xff") + one.function
                               : one.function);
      records.text(++text, std::string("/home/user/project/") + one.file);
      records.place(place++, text - 1, text, one.line);
    }
    uint64_t stack = 0;
    for (const auto& places : kStacks) {
      std::vector<uint64_t> frames = {kLibrary + 0x4213 + stack * 64, kLibrary + 0x10'0000};
      for (const uint64_t one : places) frames.push_back(one | kIsPlace);
      records.stack(++stack, 0, frames);
    }
    put(BlockKind::kStacks);
  }

  std::FILE* file_;
  uint64_t most_;
  bool is_hostile_;
  std::vector<uint8_t> content_;
  Encoder encoder_;
  BlockHead head_;
  uint64_t sequence_ = 0;
  uint64_t told_ = 0;
  uint64_t now_ = kBegin + kIdle;
};

// Memory in segments; what was given back serves the next of its size.
class Pool {
 public:
  explicit Pool(File& file) : file_(file) {}
  uint64_t allocate(uint64_t asked, uint32_t thread = File::kFirstThread, uint64_t stack = 0) {
    const uint64_t given = (asked + 511) / 512 * 512;
    std::vector<uint64_t>& same = free_[given];
    told::Allocated what{};
    what.sort = Sort::kKept;
    if (same.empty()) {
      what.sort = Sort::kRange;
      if (left_ < given) grow(given);
      what.address = next_;
      next_ += given;
      left_ -= given;
    } else {
      what.address = same.back();
      same.pop_back();
    }
    what.asked = asked;
    what.more = given - asked;
    what.stack = stack;
    what.call = kAlloc;
    what.context = 0x5550;
    file_.pass(300);
    file_.tell(what, thread);
    live_[what.address] = given;
    return what.address;
  }
  void free(uint64_t address, uint32_t thread = File::kFirstThread) {
    const auto at = live_.find(address);
    if (at == live_.end()) return;
    told::Freed what{};
    what.address = address;
    what.call = kFree;
    file_.pass(200);
    file_.tell(what, thread);
    free_[at->second].push_back(address);
    live_.erase(at);
  }

 private:
  void grow(uint64_t given) {
    const uint64_t bytes = given > 32 << 20 ? (given + (2 << 20) - 1) / (2 << 20) * (2 << 20) : 32 << 20;
    next_ = top_;
    top_ += bytes + (64 << 20);
    left_ = bytes;
    reserved_ += bytes;
    file_.pass(120'000);
    file_.tell(told::Segment{Dealing::kTaken, next_, bytes, 110'000, Why::kDemand, 0});
    file_.tell(told::Driver{(uint64_t{80} << 30) - reserved_ - (600 << 20), reserved_, kAlloc,
                            uint64_t{80} << 30, 0});
  }
  File& file_;
  std::map<uint64_t, std::vector<uint64_t>> free_;
  std::map<uint64_t, uint64_t> live_;
  uint64_t top_ = 0x7f2a'0000'0000;
  uint64_t next_ = 0;
  uint64_t left_ = 0;
  uint64_t reserved_ = 0;
};

uint64_t state = 88172645463325252;
uint64_t random_below(uint64_t most) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state % most;
}

void wait(File& file, uint64_t ns, Call call, Cause cause) {
  told::Waited what{};
  file.pass(ns);
  what.ns = ns;
  what.call = call;
  what.cause = cause;
  what.stream = 0x77;
  file.tell(what);
}

void phase(File& file, const char* name) {
  told::Phase what{};
  what.edge = name == nullptr ? Edge::kEnd : Edge::kBegin;
  if (name != nullptr)
    what.name = Text(file.is_hostile() ? std::string("</script><img src=x onerror=alert(1)>") + name : name);
  file.tell(what);
}

// Events of any sort with any values: many of few addresses, some beyond all bounds.
uint64_t any_number() {
  switch (random_below(6)) {
    case 0:
      return 0;
    case 1:
      return random_below(4);
    case 2:
      return random_below(64) << 12;
    case 3:
      return random_below(1 << 20);
    case 4:
      return ~random_below(1 << 20);
    default:
      return random_below(uint64_t{1} << 62);
  }
}
uint64_t any_address() {
  return random_below(20) == 0 ? any_number() : 0x7000'0000'0000 + (random_below(256) << 18);
}

void tell_any(File& file, uint32_t thread) {
  const uint64_t sort = random_below(12);
  if (sort < 4) {
    told::Allocated what{};
    what.address = any_address();
    what.asked = random_below(20) == 0 ? any_number() : random_below(1 << 22);
    what.more = random_below(20) == 0 ? any_number() : 0;
    what.stack = random_below(12);
    what.call = random_below(9);
    what.kind = static_cast<Kind>(random_below(4) == 0 ? random_below(15) : 0);
    what.stream = any_number();
    what.context = random_below(3);
    what.device = random_below(50) == 0 ? any_number() : random_below(2);
    file.tell(what, thread);
  } else if (sort < 7) {
    told::Freed what{};
    what.address = any_address();
    what.call = random_below(9);
    what.stack = random_below(12);
    file.tell(what, thread);
  } else if (sort == 7) {
    file.tell(told::Segment{static_cast<Dealing>(random_below(7)), any_address(),
                            random_below(10) == 0 ? any_number() : random_below(64) << 20, any_number(),
                            static_cast<Why>(random_below(7)), random_below(2)},
              thread);
  } else if (sort == 8) {
    told::Waited what{};
    what.ns = any_number();
    what.call = any_number();
    what.cause = static_cast<Cause>(random_below(12));
    what.stack = random_below(12);
    file.tell(what, thread);
  } else if (sort == 9) {
    file.tell(told::Phase{static_cast<Edge>(random_below(3)), Text(random_below(3) == 0 ? "" : "phase")},
              thread);
  } else if (sort == 10 && random_below(30) == 0) {
    file.tell(told::ContextEnded{random_below(3), 0}, thread);
  } else if (sort == 10) {
    file.tell(told::Driver{any_number(), any_number(), any_number(), any_number(), random_below(300)},
              thread);
  } else {
    told::Failed what{};
    what.asked = any_number();
    what.call = any_number();
    what.device = any_number();
    file.tell(what, thread);
    file.tell(told::OutOfMemory{any_number(), any_number()}, thread);
    file.tell(told::Counters{any_number(), any_number(), any_number(), any_number()}, thread);
    file.tell(told::Lost{random_below(3)}, thread);
  }
}

void run_wild(File& file) {
  while (!file.is_full()) {
    file.pass(random_below(8) == 0 ? 0 : random_below(100'000));
    tell_any(file, File::kFirstThread + static_cast<uint32_t>(random_below(3)));
  }
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 2;
  File file(words[1], strtoull(words[2], nullptr, 10), count > 3 && strcmp(words[3], "hostile") == 0);
  if (count > 4 && strcmp(words[3], "wild") == 0) {
    for (uint64_t turns = strtoull(words[4], nullptr, 10); turns > 0; --turns) random_below(1);
    run_wild(file);
    return 0;
  }
  Pool pool(file);
  constexpr int kLayers = 24;
  // Weights, one pinned buffer, and a library that is loaded.
  wait(file, 40'000'000, kLoad, Cause::kLoad);
  told::Allocated pinned{};
  pinned.address = 0x7e00'0000'0000;
  pinned.asked = 16 << 20;
  pinned.call = kAllocHost;
  pinned.kind = Kind::kPinned;
  file.tell(pinned);
  for (int i = 0; i < kLayers; ++i)
    pool.allocate((4 << 20) + static_cast<uint64_t>(i) * 4096, File::kFirstThread, 1);
  std::vector<uint64_t> others;
  for (uint64_t step = 0; !file.is_full(); ++step) {
    phase(file, "step");
    phase(file, "forward");
    const uint64_t length = 64 + random_below(4) * 32;
    std::vector<uint64_t> kept;
    for (int i = 0; i < kLayers && !file.is_full(); ++i) {
      kept.push_back(pool.allocate(length * 24'576 + static_cast<uint64_t>(i) * 512, File::kFirstThread, 2));
      for (int j = 0; j < 6; ++j) {
        const uint64_t brief =
            pool.allocate(1024 << random_below(8), File::kFirstThread, 3 + random_below(3));
        pool.free(brief);
      }
      file.pass(20'000);
    }
    phase(file, nullptr);
    phase(file, "backward");
    while (!kept.empty()) {
      const uint64_t gradient = pool.allocate(length * 12'288, File::kFirstThread, 6);
      file.pass(30'000);
      pool.free(kept.back());
      kept.pop_back();
      pool.free(gradient);
    }
    phase(file, nullptr);
    phase(file, "optimizer");
    wait(file, 900'000 + random_below(400'000), kSynchronize, Cause::kSynchronisation);
    wait(file, 50'000, kCopy, Cause::kCopy);
    phase(file, nullptr);
    phase(file, nullptr);
    // Another thread prepares what comes.
    others.push_back(pool.allocate(256 << 10, 4712, 7));
    if (others.size() > 3) {
      pool.free(others.front(), 4712);
      others.erase(others.begin());
    }
    if (step == 3) {
      told::Failed what{};
      what.call = kAlloc;
      what.result = 2;
      what.asked = uint64_t{100} << 30;
      file.tell(what);
    }
  }
  file.tell(told::Ended{});
  return 0;
}
