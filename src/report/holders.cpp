// See holders.hpp. Groups what is live in pages of its own; what finds no place there is counted as the rest.
#include "report/holders.hpp"

#include <algorithm>
#include <atomic>
#include <string_view>

#include "base/bytes.hpp"
#include "base/call_stack.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/pages.hpp"
#include "report/facts.hpp"
#include "report/shortage.hpp"
#include "trace/live_set.hpp"
#include "trace/recorder.hpp"
#include "trace/records.hpp"
#include "trace/stacks.hpp"

namespace cupool::report {
namespace {

using std::string_view;
using trace::LiveSet;
using trace::Modules;

struct Holder {
  uint64_t blocks;
  uint64_t bytes;
  uint64_t oldest;  // when the first of them was allocated
  uint64_t size;    // of each, without a stack
  uint32_t stack;
  uint32_t thread;  // without a stack
  uint8_t kind;
  bool is_librarys;
};

const char* word(uint8_t kind) {
  const trace::ChoiceInfo& kinds = trace::kChoiceTable[0];
  return kind < kinds.count ? kinds.words[kind] : "unknown";
}

const char* blocks(uint64_t count) { return count == 1 ? "block" : "blocks"; }

string_view file_of(string_view path) { return path.substr(path.rfind('/') + 1); }

// Libraries of CUDA that take memory for themselves, and keep it for the next call on purpose.
bool keeps_memory(string_view file) {
  constexpr string_view kNames[] = {"libcublas",   "libcudnn",    "libcufft",     "libcurand",  "libcusparse",
                                    "libcusolver", "libcutensor", "libnccl",      "libnvshmem", "libnvjpeg",
                                    "libnvrtc",    "libnpp",      "libnvJitLink", "libcudss",   "libcufile"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](string_view name) { return file.starts_with(name); });
}

// The module that asked: the first one of a stack that is neither the driver nor the runtime.
bool find_asker(uint32_t stack, Modules::Module* out) {
  const trace::WordTable::Found found = trace::stack_tables.stacks.row(stack);
  for (size_t i = 1; i < found.words.size(); ++i) {
    const uint64_t frame = found.words[i];
    if ((frame & trace::kIsPlace) != 0) return false;
    if (!trace::stack_tables.modules.find(frame - 1, found.note, out)) return false;
    const string_view file = file_of(out->path);
    if (!file.starts_with("libcuda.so") && !file.starts_with("libcudart")) return true;
  }
  return false;
}

// Holders, by hash.
class Holders {
 public:
  static constexpr size_t kMost = 1 << 14;

  Holders() : all_(static_cast<Holder*>(map_pages(kMost * sizeof(Holder)))) {}
  ~Holders() {
    if (all_ != nullptr) unmap_pages(all_, kMost * sizeof(Holder));
  }
  Holders(const Holders&) = delete;
  Holders& operator=(const Holders&) = delete;

  void add(const LiveSet::Item& item) {
    const uint64_t bytes = item.asked + item.more;
    blocks_ += 1;
    bytes_ += bytes;
    Holder* const holder = all_ == nullptr ? nullptr : find(item);
    if (holder == nullptr) return;
    if (holder->blocks == 0) {
      holder->stack = item.stack;
      holder->kind = item.kind;
      holder->size = item.stack == 0 ? bytes : 0;
      holder->thread = item.stack == 0 ? item.thread : 0;
      holder->oldest = item.time;
    }
    ++holder->blocks;
    holder->bytes += bytes;
    holder->oldest = std::min(holder->oldest, item.time);
  }
  // The largest first; returns how many.
  size_t sort() {
    if (all_ == nullptr) return 0;
    Holder* const end = std::remove_if(all_, all_ + kMost, [](const Holder& one) { return one.blocks == 0; });
    std::sort(all_, end, [](const Holder& a, const Holder& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.oldest < b.oldest;
    });
    return static_cast<size_t>(end - all_);
  }
  Holder& operator[](size_t i) { return all_[i]; }
  uint64_t blocks() const { return blocks_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Holder* find(const LiveSet::Item& item) {
    const bool has_stack = item.stack != 0;
    const uint64_t size = has_stack ? 0 : item.asked + item.more;
    const uint32_t thread = has_stack ? 0 : item.thread;
    const uint64_t hash =
        ((uint64_t{item.stack} << 8 | item.kind) + size * 31 + thread) * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < 64; ++i) {
      Holder& one = all_[((hash >> 40) + i) & (kMost - 1)];
      if (one.blocks == 0) return &one;
      if (one.stack == item.stack && one.kind == item.kind && one.size == size && one.thread == thread)
        return &one;
    }
    return nullptr;
  }

  Holder* const all_;
  uint64_t blocks_ = 0;
  uint64_t bytes_ = 0;
};

void write_one(string_view who, const Holder& one) {
  const uint64_t age = (now_ns() - std::min(now_ns(), one.oldest)) / 1'000'000'000;
  if (one.stack == 0) {
    log::line("{}:   {} in {} {} of {} of {} memory, by thread {}, up to {} s old", who,
              print_bytes(one.bytes), one.blocks, blocks(one.blocks), print_bytes(one.size), word(one.kind),
              one.thread, age);
    return;
  }
  log::line("{}:   {} in {} {} of {} memory, up to {} s old, asked for here:", who, print_bytes(one.bytes),
            one.blocks, blocks(one.blocks), word(one.kind), age);
  print_stack(who, one.stack);
}

}  // namespace

void print_stack(string_view who, uint32_t stack) {
  const trace::WordTable::Found found = trace::stack_tables.stacks.row(stack);
  unsigned number = 0;
  for (size_t i = 1; i < found.words.size(); ++i) {
    const uint64_t frame = found.words[i];
    if ((frame & trace::kIsPlace) == 0) {
      if (print_frame(who, number++, reinterpret_cast<void*>(frame))) return;
      continue;
    }
    const auto place = trace::stack_tables.places.row(static_cast<uint32_t>(frame & ~trace::kIsPlace));
    if (place.words.size() < 3) continue;
    const auto text = [&](size_t which) {
      const auto row = trace::stack_tables.texts.row(static_cast<uint32_t>(place.words[which]));
      return row.words.empty() ? string_view("?") : trace::text_of(row);
    };
    log::line("{}:     #{} {} at {}:{}", who, number++, text(0), text(1), place.words[2]);
  }
}

void write_leaks() {
  Holders all;
  if (!trace::visit_live([](const LiveSet::Item& item, void* to) { static_cast<Holders*>(to)->add(item); },
                         &all))
    return;
  const WhoText speaker = who();
  if (all.blocks() == 0) {
    log::line("{}: nothing is held at the end", speaker);
    return;
  }
  const size_t count = all.sort();
  uint64_t kept = 0;
  uint64_t kept_blocks = 0;
  for (size_t i = 0; i < count; ++i) {
    Modules::Module asker;
    if (all[i].stack == 0 || !find_asker(all[i].stack, &asker) || !keeps_memory(file_of(asker.path)))
      continue;
    all[i].is_librarys = true;
    kept += all[i].bytes;
    kept_blocks += all[i].blocks;
  }
  const uint64_t others = all.blocks() - kept_blocks;
  log::line("{}: still held at the end: {} in {} {}{}", speaker, print_bytes(all.bytes() - kept), others,
            blocks(others), others == 0 ? "" : ", the largest holders first:");
  constexpr size_t kMostLines = 50;
  size_t written = 0;
  for (size_t i = 0; i < count; ++i) {
    if (all[i].is_librarys) continue;
    if (written++ < kMostLines) write_one(speaker, all[i]);
  }
  if (written > kMostLines) log::line("{}:   and {} smaller ones", speaker, written - kMostLines);
  if (kept_blocks == 0) return;
  log::line("{}: besides, libraries of CUDA keep {} in {} {} for their next calls:", speaker,
            print_bytes(kept), kept_blocks, blocks(kept_blocks));
  written = 0;
  for (size_t i = 0; i < count && written < kMostLines; ++i) {
    Modules::Module asker;
    if (!all[i].is_librarys || !find_asker(all[i].stack, &asker)) continue;
    log::line("{}:   {} in {} {} by {}", speaker, print_bytes(all[i].bytes), all[i].blocks,
              blocks(all[i].blocks), file_of(asker.path));
    ++written;
  }
}

void write_holders(uint64_t device) {
  static constinit std::atomic<uint64_t> told{0};
  const uint64_t reports = shortages_written();
  if (told.exchange(reports) >= reports) return;
  struct Wanted {
    Holders all;
    uint64_t device;
  } wanted{{}, device};
  const bool is_known = trace::visit_live(
      [](const LiveSet::Item& item, void* to) {
        auto& into = *static_cast<Wanted*>(to);
        const auto kind = static_cast<trace::Kind>(item.kind);
        const bool is_hosts = kind == trace::Kind::kPinned || kind == trace::Kind::kRegistered;
        if (item.device == into.device && !is_hosts) into.all.add(item);
      },
      &wanted);
  if (!is_known) return;
  constexpr size_t kMostHolders = 5;
  const size_t count = wanted.all.sort();
  const WhoText speaker = who();
  if (count == 0) return;
  log::line("{}: this program holds {} in {} {} on device {}, most of it here:", speaker,
            print_bytes(wanted.all.bytes()), wanted.all.blocks(), blocks(wanted.all.blocks()), device);
  for (size_t i = 0; i < std::min(count, kMostHolders); ++i) write_one(speaker, wanted.all[i]);
}

}  // namespace cupool::report
