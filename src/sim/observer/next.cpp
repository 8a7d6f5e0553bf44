// Look-ups. The real dlsym comes from dlvsym, because dlsym itself is hooked; the next dlsym may be that of a
// pooling library, and asking it keeps that library in the chain.
#include "sim/observer/next.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "base/say.hpp"

using Dlsym = void* (*)(void*, const char*);

// Read by the assembly of dlsym: where every name that is not ours is jumped to.
extern "C" {
__attribute__((visibility("hidden"))) Dlsym cupool_observer_next_dlsym = nullptr;
__attribute__((visibility("hidden"))) void* cupool_observer_pick(void* handle, const char* name);
}

namespace cupool::observer {
namespace {

struct Row {
  const char* symbol;
  const char* name;
  int version;
  bool per_thread;
  void* wrapper;
};

const Row kRows[] = {
#define OBSERVER_HOOK(symbol, name, version, per_thread) \
  {#symbol, name, version, per_thread, reinterpret_cast<void*>(&::symbol)},
#include "sim/observer/hooks.def"
#undef OBSERVER_HOOK
};

constexpr int kRowCount = static_cast<int>(Hook::kCount);
std::atomic<void*> next_pointers[kRowCount];

Dlsym real_dlsym() {
  static const Dlsym found = [] {
    for (const char* version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"}) {
      if (void* const p = dlvsym(RTLD_NEXT, "dlsym", version)) return reinterpret_cast<Dlsym>(p);
    }
    std::fputs("cupool-observer: no dlsym in this C library\n", stderr);
    std::abort();
  }();
  return found;
}

Dlsym next_dlsym() {
  static const Dlsym found = [] {
    void* const next = real_dlsym()(RTLD_NEXT, "dlsym");
    cupool_observer_next_dlsym = next != nullptr ? reinterpret_cast<Dlsym>(next) : real_dlsym();
    return cupool_observer_next_dlsym;
  }();
  return found;
}

void remember(int index, void* found) {
  void* nothing = nullptr;
  next_pointers[index].compare_exchange_strong(nothing, found);
}

}  // namespace

void* next_function(Hook hook) {
  const int index = static_cast<int>(hook);
  if (void* const known = next_pointers[index].load()) return known;
  void* found = real_dlsym()(RTLD_NEXT, kRows[index].symbol);
  if (found == nullptr) {
    if (void* const libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)) {
      found = real_dlsym()(libcuda, kRows[index].symbol);
    }
  }
  if (found == nullptr) {
    cupool::say(stderr, "cupool-observer: nobody after me has {}\n", kRows[index].symbol);
    std::abort();
  }
  remember(index, found);
  return next_pointers[index].load();
}

void* through_proc_address(const char* name, int version, cuuint64_t flags, void* found) {
  if (name == nullptr || found == nullptr) return found;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  int best = -1;
  for (int i = 0; i < kRowCount; ++i) {
    if (std::strcmp(kRows[i].name, name) != 0 || version < kRows[i].version) continue;
    // Rows are in the order of their versions, so the last of the asked-for kind wins; calls that take no
    // stream have only the plain kind.
    if (best < 0 || kRows[i].per_thread == per_thread || kRows[best].per_thread != per_thread) best = i;
  }
  if (best < 0) return found;
  // A preloaded object behind us is the one to go on to, even if this answer came from the driver itself.
  if (next_pointers[best].load() == nullptr) {
    void* const preloaded = real_dlsym()(RTLD_NEXT, kRows[best].symbol);
    remember(best, preloaded != nullptr ? preloaded : found);
  }
  return kRows[best].wrapper;
}

const LifeCalls& life_calls() {
  static const LifeCalls calls = [] {
    LifeCalls found{[](CUdeviceptr, unsigned long long, const char*) {}, [](CUdeviceptr) { return 0; },
                    [](CUdeviceptr) {}, [](const char*, unsigned long long) {}, [](int) {}};
    void* const libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (libcuda == nullptr || real_dlsym()(libcuda, "cupoolSimLifeBegin") == nullptr) return found;
    const auto resolve = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(real_dlsym()(libcuda, name));
    };
    resolve(found.begin, "cupoolSimLifeBegin");
    resolve(found.end, "cupoolSimLifeEnd");
    resolve(found.goes_on, "cupoolSimLifeGoesOn");
    resolve(found.call_begins, "cupoolSimCallBegin");
    resolve(found.call_ends, "cupoolSimCallEnd");
    return found;
  }();
  return calls;
}

}  // namespace cupool::observer

using namespace cupool::observer;

// For the assembly: our function for this look-up, or null for "not mine, jump on".
void* cupool_observer_pick(void* handle, const char* name) {
  const Dlsym next = next_dlsym();
  if (name == nullptr || name[0] != 'c' || name[1] != 'u') return nullptr;
  for (int i = 0; i < kRowCount; ++i) {
    if (std::strcmp(kRows[i].symbol, name) != 0) continue;
    // RTLD_NEXT means "after the caller", which only a jump preserves; whoever asks that way stands behind
    // us.
    if (handle == RTLD_NEXT) return nullptr;
    void* const found = next(handle, name);
    if (found == nullptr) return nullptr;
    if (next_pointers[i].load() == nullptr) {
      void* const preloaded = real_dlsym()(RTLD_NEXT, name);
      remember(i, preloaded != nullptr ? preloaded : found);
    }
    return kRows[i].wrapper;
  }
  return nullptr;
}
