// Tools that judge memory accesses are recognised, and nobody else is.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "config/watchers.hpp"

namespace {

std::string watching(std::vector<const char*> environment, const char* tracer = "") {
  environment.push_back(nullptr);
  const char* const tool = cupool::config::watching_tool(environment.data(), tracer);
  return tool == nullptr ? "" : tool;
}

}  // namespace

TEST_CASE("an ordinary process is not watched") {
  CHECK(watching({}) == "");
  CHECK(watching({"PATH=/usr/bin/compute-sanitizer", "LD_PRELOAD=libcupool.so",
                  "CUDA_INJECTION64_PATH=/opt/libprof.so"}) == "");
}

TEST_CASE("compute-sanitizer is recognised by what it injects") {
  CHECK(watching({"HOME=/", "NV_SANITIZER_INJECTION_PORT_BASE=49152"}) == "compute-sanitizer");
  CHECK(watching({"CUDA_INJECTION64_PATH=/opt/cs/libsanitizer-collection.so"}) == "compute-sanitizer");
  CHECK(watching({"LD_PRELOAD=libcupool.so /opt/cs/libsanitizer-collection.so"}) == "compute-sanitizer");
}

TEST_CASE("cuda-memcheck is recognised by what it injects") {
  CHECK(watching({"CUDA_MEMCHECK=1"}) == "cuda-memcheck");
  CHECK(watching({"CUDA_INJECTION64_PATH=/opt/libmemcheck.so"}) == "cuda-memcheck");
}

TEST_CASE("a debugger is recognised by its name, and a passive tracer is not taken for one") {
  CHECK(watching({}, "cuda-gdb\n") == "a debugger");
  CHECK(watching({}, "gdb\n") == "a debugger");
  CHECK(watching({}, "lldb-server\n") == "a debugger");
  CHECK(watching({}, "strace\n") == "");
}
