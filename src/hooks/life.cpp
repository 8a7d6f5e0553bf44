// See life.hpp. The library's destructor is the end of the process; it only reads and prints, the pool is never torn down
// and other libraries may still call us afterwards.
#include "hooks/life.hpp"

#include <pthread.h>

#include <atomic>

#include "base/log.hpp"
#include "config/options.hpp"
#include "config/print.hpp"
#include "cuda/real.hpp"
#include "hooks/captures.hpp"
#include "hooks/serving.hpp"
#include "stats/counters.hpp"
#include "stats/print.hpp"

namespace cupool {
namespace {

enum class Life { kUnused, kServing, kForked };
constinit std::atomic<Life> life{Life::kUnused};

void forget_everything() {
  life.store(Life::kForked, std::memory_order_relaxed);
  hooks::detail::serving.store(false, std::memory_order_relaxed);
  hooks::pools.forget_after_fork();
  hooks::forget_captures_after_fork();
  stats::forget_after_fork();
}

void to_stderr(void*, const char* text, unsigned long size) { log::raw(text, size); }

[[gnu::destructor]] void process_ends() {
  if (life.load(std::memory_order_relaxed) == Life::kUnused) {
    if (config::help_requested()) config::options();
    return;
  }
  const config::Options& options = config::options();
  if (options.stats == config::StatsForm::kText) stats::print_text(stats::sums(), to_stderr, nullptr);
  if (options.stats == config::StatsForm::kJson) stats::print_json(stats::sums(), to_stderr, nullptr);
}

}  // namespace

void cuda::on_first_use() {
  const config::Options& options = config::options();
  life.store(Life::kServing, std::memory_order_relaxed);
  pthread_atfork(nullptr, nullptr, forget_everything);
  if (options.streams == config::Streams::kFences) hooks::pools.order().use_fences_only();
  hooks::detail::serving.store(options.backend != config::Backend::kOff, std::memory_order_relaxed);
}

bool hooks::is_alive() { return life.load(std::memory_order_relaxed) == Life::kServing; }

}  // namespace cupool
