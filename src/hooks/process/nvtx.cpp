// NVTX ranges as phases of a trace. NVTX, a header in the program and its libraries, loads the library that
// NVTX_INJECTION64_PATH names at its first call, and asks it to take over functions: where a trace is wanted
// and the user has named none, that is us. Told are ranges that are pushed and popped by one thread, and
// ranges that one thread starts and any thread ends, of the default domain and all others. Holds no lock;
// off, each call is a test of one word.
#include "hooks/process/nvtx.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "config/process.hpp"
#include "trace/recorder.hpp"
#include "trace/stacks.hpp"

namespace cupool::hooks {
namespace {

// What NVTX's interface for tools consists of, as far as it is used here.
using Function = void (*)();
struct Callbacks {
  size_t struct_size;
  int (*module_functions)(int module, Function*** table, unsigned* size);
};
using GetExportTable = const void* (*)(uint32_t which);
constexpr uint32_t kCallbacks = 1;
enum Module : int { kCore = 1, kDomains = 5 };
enum Core : unsigned {
  kStartEx = 4,
  kStartA = 5,
  kStartW = 6,
  kEnd = 7,
  kPushEx = 8,
  kPushA = 9,
  kPushW = 10,
  kPop = 11
};
enum Domains : unsigned {
  kDomainStartEx = 2,
  kDomainEnd = 3,
  kDomainPushEx = 4,
  kDomainPop = 5,
  kDomainRegisterA = 10,
  kDomainRegisterW = 11
};

struct Attributes {
  uint16_t version;
  uint16_t size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type;
  int32_t reserved;
  uint64_t payload;
  int32_t message_type;
  const void* message;
};
enum Message : int32_t { kAscii = 1, kUnicode = 2, kRegistered = 3 };

constinit thread_local int depth = 0;

trace::Text narrow(const wchar_t* from) {
  trace::Text text;
  for (size_t i = 0; from != nullptr && *from != 0 && i < trace::Text::kMost; ++i, ++from)
    text.bytes[i] = *from < 0x80 ? static_cast<char>(*from) : '?';
  return text;
}
trace::Text plain(const char* from) { return from == nullptr ? trace::Text() : trace::Text(from); }

// A registered string is the number of its text.
const void* keep(const trace::Text& text) {
  const size_t size = text.view().size();
  uint64_t words[1 + sizeof text / 8] = {size};
  __builtin_memcpy(words + 1, text.bytes, size);
  const uint32_t number = trace::stack_tables.texts.find_or_add({words, 1 + (size + 7) / 8});
  return reinterpret_cast<const void*>(uintptr_t{number});
}

trace::Text text_of(const Attributes* what) {
  if (what == nullptr) return {};
  if (what->message_type == kAscii) return plain(static_cast<const char*>(what->message));
  if (what->message_type == kUnicode) return narrow(static_cast<const wchar_t*>(what->message));
  if (what->message_type != kRegistered) return {};
  const auto number = reinterpret_cast<uintptr_t>(what->message);
  const auto row = trace::stack_tables.texts.row(static_cast<uint32_t>(number));
  return row.words.empty() ? trace::Text() : trace::Text(trace::text_of(row));
}

int begin(const trace::Text& name) {
  if (trace::is_on()) trace::record(trace::told::Phase{trace::Edge::kBegin, name, 0});
  return depth++;
}
int end() {
  if (depth == 0) return -1;
  if (trace::is_on()) trace::record(trace::told::Phase{trace::Edge::kEnd, {}, 0});
  return --depth;
}

// A range has a number, by which whoever ends it names it; whatever the domain, there is one row of numbers.
uint64_t start(const trace::Text& name) {
  static constinit std::atomic<uint64_t> last{0};
  const uint64_t number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  if (trace::is_on()) trace::record(trace::told::Phase{trace::Edge::kStart, name, number});
  return number;
}
void stop(uint64_t number) {
  if (trace::is_on()) trace::record(trace::told::Phase{trace::Edge::kStop, {}, number});
}

uint64_t start_ex(const Attributes* what) { return start(text_of(what)); }
uint64_t start_a(const char* name) { return start(plain(name)); }
uint64_t start_w(const wchar_t* name) { return start(narrow(name)); }
void range_end(uint64_t number) { stop(number); }
uint64_t domain_start_ex(void*, const Attributes* what) { return start(text_of(what)); }
void domain_end(void*, uint64_t number) { stop(number); }
int push_ex(const Attributes* what) { return begin(text_of(what)); }
int push_a(const char* name) { return begin(plain(name)); }
int push_w(const wchar_t* name) { return begin(narrow(name)); }
int pop() { return end(); }
int domain_push_ex(void*, const Attributes* what) { return begin(text_of(what)); }
int domain_pop(void*) { return end(); }
const void* domain_register_a(void*, const char* name) { return keep(plain(name)); }
const void* domain_register_w(void*, const wchar_t* name) { return keep(narrow(name)); }

struct Entry {
  Module module;
  unsigned number;
  Function function;
};

}  // namespace

void offer_nvtx() {
  Dl_info own;
  if (dladdr(reinterpret_cast<const void*>(&offer_nvtx), &own) != 0)
    config::set_if_tracing("NVTX_INJECTION64_PATH", own.dli_fname);
}

extern "C" [[gnu::visibility("default")]] int InitializeInjectionNvtx2(GetExportTable get) {
  const auto* const callbacks = get == nullptr ? nullptr : static_cast<const Callbacks*>(get(kCallbacks));
  if (callbacks == nullptr || callbacks->struct_size < sizeof(Callbacks)) return 0;
  const auto function = [](auto* one) { return reinterpret_cast<Function>(one); };
  const Entry rows[] = {{kCore, kStartEx, function(start_ex)},
                        {kCore, kStartA, function(start_a)},
                        {kCore, kStartW, function(start_w)},
                        {kCore, kEnd, function(range_end)},
                        {kDomains, kDomainStartEx, function(domain_start_ex)},
                        {kDomains, kDomainEnd, function(domain_end)},
                        {kCore, kPushEx, function(push_ex)},
                        {kCore, kPushA, function(push_a)},
                        {kCore, kPushW, function(push_w)},
                        {kCore, kPop, function(pop)},
                        {kDomains, kDomainPushEx, function(domain_push_ex)},
                        {kDomains, kDomainPop, function(domain_pop)},
                        {kDomains, kDomainRegisterA, function(domain_register_a)},
                        {kDomains, kDomainRegisterW, function(domain_register_w)}};
  for (const Entry& row : rows) {
    Function** table = nullptr;
    unsigned size = 0;
    if (callbacks->module_functions(row.module, &table, &size) != 0 && row.number < size &&
        table[row.number] != nullptr)
      *table[row.number] = row.function;
  }
  return 1;
}

}  // namespace cupool::hooks
