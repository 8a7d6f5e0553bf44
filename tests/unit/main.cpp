// Catch2's own main, compiled once for all unit tests: it takes far longer than any of them.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
