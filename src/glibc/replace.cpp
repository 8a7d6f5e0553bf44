// Functions that glibc 2.28 did not have, implemented with those it had. Hidden: they serve this object and
// the static C++ library in it, never the program. Nothing here keeps state or takes a lock of ours.
// forward.S has the functions whose symbol version alone changed.
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <sys/random.h>
#include <time.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {

// The first argument of the stat functions that existed before 2.33.
#if defined(__x86_64__)
constexpr int kStatVersion = 1;
asm(".symver cupool_old_errors, sys_errlist@GLIBC_2.12");
asm(".symver cupool_old_error_count, sys_nerr@GLIBC_2.12");
#else
constexpr int kStatVersion = 0;
asm(".symver cupool_old_errors, sys_errlist@GLIBC_2.17");
asm(".symver cupool_old_error_count, sys_nerr@GLIBC_2.17");
#endif

// What libgcc's unwinder asks of _dl_find_object; the layout is part of glibc's interface.
struct FoundObject {
  unsigned long long flags;
  void* map_start;
  void* map_end;
  link_map* map;
  void* eh_frame;
  unsigned long long reserved[7];
};

struct Search {
  uintptr_t address;
  FoundObject* out;
};

int look_at_object(dl_phdr_info* info, size_t, void* argument) {
  const Search& search = *static_cast<Search*>(argument);
  bool covers = false;
  void* eh_frame = nullptr;
  uintptr_t begin = UINTPTR_MAX;
  uintptr_t end = 0;
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const uintptr_t start = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_GNU_EH_FRAME) eh_frame = reinterpret_cast<void*>(start);
    if (header.p_type != PT_LOAD) continue;
    begin = start < begin ? start : begin;
    end = start + header.p_memsz > end ? start + header.p_memsz : end;
    covers = covers || search.address - start < header.p_memsz;
  }
  if (!covers) return 0;
  *search.out = {0, reinterpret_cast<void*>(begin), reinterpret_cast<void*>(end), nullptr, eh_frame, {}};
  return 1;
}

}  // namespace

extern "C" {

int __xstat(int version, const char* path, void* out);
int __lxstat(int version, const char* path, void* out);
int __fxstat(int version, int file, void* out);
int __fxstatat(int version, int folder, const char* path, void* out, int flags);

extern const char* const cupool_old_errors[];
extern const int cupool_old_error_count;

// The headers declare the same names with their own types, so these are bound by symbol.
#define CUPOOL_REPLACES(symbol) asm(#symbol) __attribute__((visibility("hidden")))
int old_stat(const char* path, void* out) CUPOOL_REPLACES(stat);
int old_stat64(const char* path, void* out) CUPOOL_REPLACES(stat64);
int old_lstat(const char* path, void* out) CUPOOL_REPLACES(lstat);
int old_lstat64(const char* path, void* out) CUPOOL_REPLACES(lstat64);
int old_fstat(int file, void* out) CUPOOL_REPLACES(fstat);
int old_fstat64(int file, void* out) CUPOOL_REPLACES(fstat64);
int old_fstatat(int folder, const char* path, void* out, int flags) CUPOOL_REPLACES(fstatat);
int old_fstatat64(int folder, const char* path, void* out, int flags) CUPOOL_REPLACES(fstatat64);
int old_find_object(void* address, FoundObject* out) CUPOOL_REPLACES(_dl_find_object);
uint32_t old_arc4random() CUPOOL_REPLACES(arc4random);
const char* old_strerrordesc(int error) CUPOOL_REPLACES(strerrordesc_np);
int old_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                       const timespec* until) CUPOOL_REPLACES(pthread_cond_clockwait);
long old_strtol(const char* text, char** end, int base) CUPOOL_REPLACES(__isoc23_strtol);
unsigned long old_strtoul(const char* text, char** end, int base) CUPOOL_REPLACES(__isoc23_strtoul);
long long old_strtoll(const char* text, char** end, int base) CUPOOL_REPLACES(__isoc23_strtoll);
unsigned long long old_strtoull(const char* text, char** end, int base) CUPOOL_REPLACES(__isoc23_strtoull);

int old_stat(const char* path, void* out) { return __xstat(kStatVersion, path, out); }
int old_stat64(const char* path, void* out) { return __xstat(kStatVersion, path, out); }
int old_lstat(const char* path, void* out) { return __lxstat(kStatVersion, path, out); }
int old_lstat64(const char* path, void* out) { return __lxstat(kStatVersion, path, out); }
int old_fstat(int file, void* out) { return __fxstat(kStatVersion, file, out); }
int old_fstat64(int file, void* out) { return __fxstat(kStatVersion, file, out); }
int old_fstatat(int folder, const char* path, void* out, int flags) {
  return __fxstatat(kStatVersion, folder, path, out, flags);
}
int old_fstatat64(int folder, const char* path, void* out, int flags) {
  return __fxstatat(kStatVersion, folder, path, out, flags);
}

// 0 if an object contains the address, as the unwinder expects.
int old_find_object(void* address, FoundObject* out) {
  Search search{reinterpret_cast<uintptr_t>(address), out};
  return dl_iterate_phdr(look_at_object, &search) == 1 ? 0 : -1;
}

uint32_t old_arc4random() {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) < 0) {
    if (errno != EINTR) abort();
  }
  return value;
}

const char* old_strerrordesc(int error) {
  return error >= 0 && error < cupool_old_error_count ? cupool_old_errors[error] : nullptr;
}

// Converts to the wall clock, the only one of the two clocks that the old function knows.
int old_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                       const timespec* until) {
  constexpr long kSecond = 1'000'000'000;
  timespec now;
  timespec wall;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  wall.tv_sec += until->tv_sec - now.tv_sec;
  wall.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (wall.tv_nsec >= kSecond) {
    wall.tv_nsec -= kSecond;
    ++wall.tv_sec;
  } else if (wall.tv_nsec < 0) {
    wall.tv_nsec += kSecond;
    --wall.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &wall);
}

// Bound by symbol too: the headers of glibc 2.38 and later turn strtol into __isoc23_strtol, which would then
// call itself for ever.
long plain_strtol(const char* text, char** end, int base) asm("strtol");
unsigned long plain_strtoul(const char* text, char** end, int base) asm("strtoul");
long long plain_strtoll(const char* text, char** end, int base) asm("strtoll");
unsigned long long plain_strtoull(const char* text, char** end, int base) asm("strtoull");
long old_strtol(const char* text, char** end, int base) { return plain_strtol(text, end, base); }
unsigned long old_strtoul(const char* text, char** end, int base) { return plain_strtoul(text, end, base); }
long long old_strtoll(const char* text, char** end, int base) { return plain_strtoll(text, end, base); }
unsigned long long old_strtoull(const char* text, char** end, int base) {
  return plain_strtoull(text, end, base);
}

// Read by the C++ library's reference counts: "there may be threads" is always right.
[[gnu::visibility("hidden")]] extern char __libc_single_threaded;
char __libc_single_threaded = 0;
}
