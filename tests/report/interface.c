/* The C interface from C, through weak symbols: says "absent" without cupool, and otherwise walks through
   every function. The driver is reached by dlopen, as a program that knows neither at build time would.
   Prints one line per promise. */
#define CUPOOL_WEAK
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cupool/cupool.h"

typedef unsigned long long Pointer;
static int (*allocate)(Pointer*, size_t);
static int (*release)(Pointer);

static void* find(void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (found == NULL) exit(3);
  return found;
}

static void start(void) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) exit(3);
  int (*init)(unsigned) = (int (*)(unsigned))find(library, "cuInit");
  int (*retain)(void**, int) = (int (*)(void**, int))find(library, "cuDevicePrimaryCtxRetain");
  int (*use)(void*) = (int (*)(void*))find(library, "cuCtxSetCurrent");
  allocate = (int (*)(Pointer*, size_t))find(library, "cuMemAlloc_v2");
  release = (int (*)(Pointer))find(library, "cuMemFree_v2");
  void* context = NULL;
  if (init(0) != 0 || retain(&context, 0) != 0 || use(context) != 0) exit(3);
}

static uint64_t stat_of(const char* name) {
  uint64_t value = 0;
  if (cupool_stat(name, &value) != 0) exit(4);
  return value;
}

static void say(const char* what, int holds) { printf("%s: %s\n", what, holds ? "yes" : "NO"); }

int main(void) {
  if (cupool_name == NULL) {
    puts("absent");
    return 0;
  }
  start();
  say("is cupool", strcmp(cupool_name(), "cupool") == 0 && strchr(cupool_version(), '.') != NULL);
  printf("enabled %d\n", cupool_is_enabled());

  Pointer blocks[4] = {0};
  for (int i = 0; i < 4; ++i) {
    if (allocate(&blocks[i], (size_t)30 << 20) != 0) return 5;
  }
  say("counts what is live", stat_of("live_bytes") == (uint64_t)120 << 20);
  uint64_t of_device = 0;
  say("counts by device",
      cupool_device_stat(0, "live_bytes", &of_device) == 0 && of_device == stat_of("live_bytes"));
  say("refuses unknown names", cupool_stat("no_such_counter", &of_device) == 1 &&
                                   cupool_device_stat(0, "submissions", &of_device) == 1 &&
                                   cupool_device_stat(-1, "live_bytes", &of_device) == 1 &&
                                   cupool_stat(NULL, NULL) == 1);

  say("takes a stream use of a block", cupool_record_stream(blocks[0], NULL) == 0);
  say("refuses a stream use of nothing", cupool_record_stream(16, NULL) == 1);

  for (int i = 0; i < 3; ++i) release(blocks[i]);
  say("keeps what is free", stat_of("cached_bytes") >= (uint64_t)90 << 20);
  say("trims to a bound",
      cupool_trim((size_t)60 << 20) >= (size_t)30 << 20 && stat_of("cached_bytes") <= (uint64_t)64 << 20);
  cupool_empty_cache();
  say("empties the cache", stat_of("reserved_bytes") == (uint64_t)30 << 20);
  say("remembers the peak", stat_of("peak_live_bytes") == (uint64_t)120 << 20);
  cupool_reset_peaks();
  say("resets the peak", stat_of("peak_live_bytes") == (uint64_t)30 << 20 &&
                             stat_of("peak_reserved_bytes") == (uint64_t)30 << 20);

  cupool_set_max_cached(0);
  release(blocks[3]);
  say("keeps nothing above the threshold", stat_of("reserved_bytes") == 0);

  char small[8];
  const size_t whole = cupool_stats_json(NULL, 0);
  say("cuts JSON that does not fit",
      cupool_stats_json(small, sizeof small) >= whole - 64 && strlen(small) == 7);
  char* const text = malloc(whole + 4096);
  cupool_stats_json(text, whole + 4096);
  say("gives JSON", text[0] == '{' && strstr(text, "\"devices\":[{\"device\":0") != NULL);
  free(text);

  int64_t charge = -1;
  const int answer = cupool_device_charge(0, "charged", &charge);
  say("tells what the driver charges, or that nobody knows", answer == 0 ? charge >= 0 : answer == 801);
  say("tells its parts", cupool_device_charge(0, "pool_live", &charge) == 0 && charge >= 0);
  say("refuses a part that there is not", cupool_device_charge(0, "parts", &charge) == 1 &&
                                              cupool_device_charge(-1, "charged", &charge) == 1 &&
                                              cupool_device_charge(0, "charged", NULL) == 1);

  int descriptor = -1;
  void* pool = NULL;
  char data[CUPOOL_POINTER_BYTES] = {0};
  uint64_t pointer = 0;
  say("shares no pool that was not made for it", cupool_export_pool(&descriptor) == 801);
  say("imports no file", cupool_import_pool(0, &pool) != 0 && cupool_import_pool(-1, &pool) == 1);
  say("imports no pointer of a wrong size",
      cupool_import_pointer(&pool, data, 8, &pointer) == 1 && cupool_export_pointer(1, data, 8) == 1);
  return 0;
}
