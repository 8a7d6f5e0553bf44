// See process.hpp.
#include "config/process.hpp"

#include <errno.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/format.hpp"
#include "config/kinds.hpp"

namespace cupool::config {
namespace {

constinit char name[64] = "";
constinit int64_t start_ns = 0;
constinit std::atomic<bool> has_name{false};

}  // namespace

void remember_program() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  start_ns = now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
  // Runs in every program, with CUDA or without, so it does not touch the formatter's pages.
  strncpy(name, program_invocation_short_name, sizeof name - 1);
  flatten(name, strlen(name));
  has_name.store(true, std::memory_order_release);
}

const char* program() {
  if (!has_name.load(std::memory_order_acquire)) remember_program();
  return name;
}

int64_t started_at() {
  program();
  return start_ns;
}

bool has_raised_rights() { return getauxval(AT_SECURE) != 0; }

const char* const* environment() {
  static constexpr const char* kNone[] = {nullptr};
  return has_raised_rights() || environ == nullptr ? kNone : environ;
}

const char* variable(const char* wanted) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the program's own getenv runs the same risk
  return has_raised_rights() ? nullptr : getenv(wanted);
}

void set_if_tracing(const char* name, const char* value) {
  const char* const trace = variable("CUPOOL_TRACE");
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread
  if (trace != nullptr && *trace != '\0') setenv(name, value, 0);
}

const char* rank() {
  for (const char* const one :
       {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID", "RANK"}) {
    const char* const text = variable(one);
    uint64_t number = 0;
    if (text != nullptr && parse(text, number)) return text;
  }
  return "";
}

const char* program_path() {
  const char* const text = variable("PATH");
  return text == nullptr ? "/bin:/usr/bin" : text;
}

const char* library_path() {
  const char* const text = variable("LD_LIBRARY_PATH");
  return text == nullptr ? "" : text;
}

const char* preloaded() {
  const char* const text = variable("LD_PRELOAD");
  return text == nullptr ? "" : text;
}

}  // namespace cupool::config
