// See table.hpp. Names are sorted by the compiler; nothing is set up at load time.
#include "hooks/doors/table.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "cuda/kinds.hpp"
#include "cuda/real.hpp"

// Where submit.cpp keeps the hooks that it makes: to make them here as well would take as long again to
// compile.
#define CUPOOL_MADE(kind, symbol, like, place) \
  extern "C" [[gnu::visibility("hidden")]] const decltype(&like) cupool_slot_##symbol;
#include "cuda/api.def"

namespace cupool::hooks {
namespace {

template <typename Function>
void* address(Function function) {
  return reinterpret_cast<void*>(function);
}

// The hook itself: the body or trampoline under the C name, or what the trampoline jumps to.
#define CUPOOL_ENTER(symbol, hook, is_seen)                                     \
  Row{#symbol, [] { return address(hook); }, [] { return address(&::symbol); }, \
      [] { return cuda::real.symbol.address(); }, is_seen},
#define CUPOOL_REAL(name)
#define CUPOOL_LATE(name, version)
#define CUPOOL_ROW(symbol, like) CUPOOL_ENTER(symbol, &::symbol, true)
#define CUPOOL_MADE(kind, symbol, like, place) \
  CUPOOL_ENTER(symbol, cupool_slot_##symbol, cuda::row_of(cuda::Kind::kind).is_seen)
constexpr Row kRows[] = {
#include "cuda/api.def"
};

struct Name {
  std::string_view text;
  uint16_t row;
};

#define CUPOOL_REAL(name)
#define CUPOOL_LATE(name, version)
#define CUPOOL_ROW(symbol, like) #symbol,
constexpr std::string_view kHooked[] = {
#include "cuda/api.def"
};
constexpr size_t kCount = std::size(kHooked);
static_assert(kCount == std::size(kRows));

constexpr auto kByName = [] {
  std::array<Name, kCount> names{};
  for (uint16_t i = 0; i < kCount; ++i) names[i] = {kHooked[i], i};
  std::sort(names.begin(), names.end(), [](const Name& a, const Name& b) { return a.text < b.text; });
  return names;
}();

// Every name we can vouch for, hooked or not.
constexpr auto kKnown = [] {
#define CUPOOL_KNOWN(name) #name,
#define CUPOOL_QUIET(name, reason) #name,
#define CUPOOL_ROW(symbol, like) #symbol,
  std::array names = std::to_array<std::string_view>({
#include "cuda/api.def"
#include "cuda/known.def"
  });
  std::sort(names.begin(), names.end());
  return names;
}();

// Open addressing over row numbers plus one; 0 is free. More than twice as many slots as rows, so that probes
// are short.
constexpr size_t kSlots = 1024;
static_assert(kSlots > 2 * kCount && (kSlots & (kSlots - 1)) == 0);
constinit std::array<std::atomic<uint16_t>, kSlots> by_pointer{};
constinit std::atomic<bool> indexed{false};

size_t first_slot(const void* function) {
  return (reinterpret_cast<uintptr_t>(function) * 0x9E3779B97F4A7C15u) >> 54;
}

// Threads may race here: each slot changes from free to its row once.
void index_pointers() {
  for (uint16_t i = 0; i < kCount; ++i) {
    const void* const function = kRows[i].real();
    for (size_t slot = first_slot(function);; ++slot) {
      uint16_t taken = 0;
      auto& word = by_pointer[slot % kSlots];
      if (word.compare_exchange_strong(taken, static_cast<uint16_t>(i + 1), std::memory_order_relaxed)) break;
      if (kRows[taken - 1].real() == function) break;
    }
  }
  indexed.store(true, std::memory_order_release);
}

// "cuMemAlloc_v2" and "cuMemcpy_ptds" are versions of what cuGetProcAddress calls "cuMemAlloc" and
// "cuMemcpy".
bool is_version_of(std::string_view symbol, std::string_view name) {
  if (!symbol.starts_with(name)) return false;
  symbol.remove_prefix(name.size());
  if (symbol.starts_with("_v") && symbol.size() > 2) {
    symbol.remove_prefix(2);
    while (!symbol.empty() && symbol[0] >= '0' && symbol[0] <= '9') symbol.remove_prefix(1);
  }
  return symbol.empty() || symbol == "_ptsz" || symbol == "_ptds";
}

}  // namespace

const Row* find_by_name(std::string_view name) {
  const auto found = std::lower_bound(kByName.begin(), kByName.end(), name,
                                      [](const Name& a, std::string_view b) { return a.text < b; });
  return found != kByName.end() && found->text == name ? &kRows[found->row] : nullptr;
}

const Row* find_by_pointer(const void* function) {
  if (!indexed.load(std::memory_order_acquire)) index_pointers();
  for (size_t slot = first_slot(function);; ++slot) {
    const uint16_t row = by_pointer[slot % kSlots].load(std::memory_order_relaxed);
    if (row == 0) return nullptr;
    if (kRows[row - 1].real() == function) return &kRows[row - 1];
  }
}

bool is_known(std::string_view name, const void* function) {
  bool hooked = false;
  bool known = false;
  for (auto it = std::lower_bound(kKnown.begin(), kKnown.end(), name);
       it != kKnown.end() && it->starts_with(name); ++it) {
    if (!is_version_of(*it, name)) continue;
    known = true;
    const Row* const row = find_by_name(*it);
    hooked = hooked || (row != nullptr && row->must_be_seen);
    if (cuda::driver_symbol(it->data()) == function) return true;
  }
  // An unknown newer version of a hooked function escapes its hook; of any other function it is as harmless
  // as the old.
  return known && !hooked;
}

bool is_known_symbol(std::string_view symbol) {
  if (symbol.ends_with("_ptsz") || symbol.ends_with("_ptds")) symbol.remove_suffix(5);
  if (std::binary_search(kKnown.begin(), kKnown.end(), symbol)) return true;
  const size_t version = symbol.rfind("_v");
  if (version == std::string_view::npos || !is_version_of(symbol, symbol.substr(0, version))) return false;
  // &kKnown matches no symbol, so the answer is whether some version is known and none is hooked.
  return is_known(symbol.substr(0, version), &kKnown);
}

}  // namespace cupool::hooks
