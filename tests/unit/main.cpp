// Catch2's own main, compiled once for all unit tests: it takes far longer than any of them.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>

#if defined(__SANITIZE_ADDRESS__)
// To look for leaks the runtime stops and searches the whole process, once for every test case, which takes
// longer than the test. ASAN_OPTIONS=detect_leaks=1 asks for it.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif
