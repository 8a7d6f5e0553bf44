// A listener that reports bad frees (CUPOOL_CHECK): a message for each free that was refused because of its
// pointer, with the call stacks of this call and of the earlier ones. It keeps nothing: the recorder of
// traces knows what is live, and of what was freed lately what it was and where that was done
// (trace/live_set.hpp).
#include "base/log.hpp"
#include "config/options.hpp"
#include "hooks/observe/observer.hpp"
#include "hooks/observe/start_stacks.hpp"
#include "report/facts.hpp"
#include "report/holders.hpp"
#include "trace/recorder.hpp"
#include "trace/stacks.hpp"

namespace cupool::hooks::observe {

extern const Listener check_listener;

namespace {

bool is_wanted() {
  if (!config::options().check) return false;
  start_stacks();
  return true;
}

void failed(const Failed& what) {
  if (!what.is_bad_pointer) return;
  const uint32_t here = trace::take_stack();
  trace::LiveSet::Item life;
  const bool known = trace::find_block(what.address, &life);
  const report::WhoText who = report::who();
  const auto address = static_cast<unsigned long long>(what.address);
  const auto inside = static_cast<unsigned long long>(what.address - life.address);
  const auto bytes = static_cast<unsigned long long>(life.asked);
  const auto start = static_cast<unsigned long long>(life.address);
  if (!known) {
    log::line("{}: free of {:#x}, which was never allocated, or not through this library; freed here:", who,
              address);
  } else if (inside != 0) {
    log::line(
        "{}: free of {:#x}, an interior pointer: it is {} bytes inside a block of {} bytes at {:#x}{}; freed "
        "here:",
        who, address, inside, bytes, start,
        life.is_live             ? ""
        : life.went_with_context ? " that ended with its context"
                                 : " that was freed before");
  } else if (life.went_with_context) {
    log::line("{}: free of {:#x}, a block of {} bytes that ended with its context; freed here:", who, address,
              bytes);
  } else {
    log::line("{}: double free of {:#x}, a block of {} bytes; freed again here:", who, address, bytes);
  }
  report::print_stack(who, here);
  if (known && !life.is_live && !life.went_with_context) {
    log::line("{}:   freed before here:", who);
    report::print_stack(who, life.freed_stack);
  }
  if (known) {
    log::line("{}:   allocated here:", who);
    report::print_stack(who, life.stack);
  }
}

}  // namespace

constinit const Listener check_listener{.is_wanted = is_wanted, .failed = failed};

}  // namespace cupool::hooks::observe
