// Lets our executables start on any glibc since 2.28. Since 2.34 the start files leave it to
// __libc_start_main to run the executable's constructors; before, the executable passed in a function that
// did. The old version of the symbol calls the function passed to it on either glibc.
#include <cstddef>

extern "C" {

using Constructor = void (*)(int, char**, char**);
[[gnu::visibility("hidden")]] extern const Constructor __init_array_start[];
[[gnu::visibility("hidden")]] extern const Constructor __init_array_end[];
[[gnu::visibility("hidden")]] void _init();

using Main = int(int, char**, char**);
#if defined(__x86_64__)
asm(".symver cupool_old_start_main, __libc_start_main@GLIBC_2.2.5");
#else
asm(".symver cupool_old_start_main, __libc_start_main@GLIBC_2.17");
#endif
int cupool_old_start_main(Main* main, int count, char** arguments, Constructor initialize, void (*finish)(),
                          void (*loader_finish)(), void* stack_end);

static void run_constructors(int count, char** arguments, char** environment) {
  _init();
  for (const Constructor* one = __init_array_start; one != __init_array_end; ++one)
    (*one)(count, arguments, environment);
}

[[gnu::visibility("hidden")]] int __libc_start_main(Main* main, int count, char** arguments, Constructor,
                                                    void (*)(), void (*loader_finish)(), void* stack_end);
int __libc_start_main(Main* main, int count, char** arguments, Constructor, void (*)(),
                      void (*loader_finish)(), void* stack_end) {
  return cupool_old_start_main(main, count, arguments, run_constructors, nullptr, loader_finish, stack_end);
}
}
