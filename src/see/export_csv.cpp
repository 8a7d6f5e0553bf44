// A trace as RMM's log of events, which its replay benchmark reads: device memory alone, for a log has one
// kind. Times are those of the day, in UTC.
#include <algorithm>

#include "base/say.hpp"
#include "see/exports.hpp"

namespace cupool::see {
namespace {

std::string time_of_day(const Model& model, uint64_t time) {
  const tools::TraceAbout& about = model.about();
  const uint64_t micro = (about.wall + time - about.monotonic) / 1000;
  const uint64_t second = micro / 1'000'000 % 86'400;
  return make_text("{:02}:{:02}:{:02}.{:06}", second / 3600, second / 60 % 60, second % 60,
                   micro % 1'000'000);
}

}  // namespace

void write_csv(std::FILE* file, const Model& model) {
  say(file, "Thread,Time,Action,Pointer,Size,Stream\n");
  size_t next = 0;
  const auto failures_until = [&](uint64_t time) {
    for (; next < model.failures.size() && model.failures[next].time <= time; ++next) {
      const Failure& one = model.failures[next];
      if (!one.is_final)
        say(file, "{},{},allocate failure,0x0,{},0x0\n", model.threads[one.thread],
            time_of_day(model, one.time), one.asked);
    }
  };
  for (const uint32_t number : model.order) {
    const Life& life = model.lives[number & ~kIsFree];
    if (model.is_hosts(life)) continue;
    const bool is_free = (number & kIsFree) != 0;
    const uint64_t time = is_free ? life.end : life.begin;
    failures_until(time);
    say(file, "{},{},{},{:#x},{},{:#x}\n", model.threads[is_free ? life.free_thread : life.thread],
        time_of_day(model, time), trusted(is_free ? "free" : "allocate"), life.address, life.asked,
        model.streams[life.stream]);
  }
  failures_until(kNever);
}

}  // namespace cupool::see
