// What one event of a trace costs the thread that records it, alone and with its call stack. The recorder is
// linked in, and a file takes the events; what gathers them is another thread, as in a process under cupool.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "trace/recorder.hpp"
#include "trace/stacks.hpp"

namespace {

namespace trace = cupool::trace;

trace::told::Allocated event(uint64_t address) {
  trace::told::Allocated what{};
  what.address = address << 9;
  what.asked = 1000;
  what.context = 0x5555;
  return what;
}

// Nanoseconds each, the median and quartiles of many batches.
template <typename Do>
void measure(const char* name, int batches, int count, Do&& one) {
  std::vector<double> all;
  for (int batch = 0; batch < batches; ++batch) {
    const uint64_t begin = cupool::now_ns();
    for (int i = 0; i < count; ++i) one(static_cast<uint64_t>(i));
    all.push_back(static_cast<double>(cupool::now_ns() - begin) / count);
    std::this_thread::sleep_for(std::chrono::milliseconds(batches == 1 ? 0 : 2));
  }
  std::sort(all.begin(), all.end());
  std::printf("%-44s %7.1f ns  (%.1f .. %.1f)\n", name, all[all.size() / 2], all[all.size() / 4],
              all[all.size() * 3 / 4]);
}

[[gnu::noinline]] void deeper(int frames, bool is_smoke) {
  if (frames > 0) {
    deeper(frames - 1, is_smoke);
    asm volatile("" ::: "memory");
    return;
  }
  const int batches = is_smoke ? 1 : 200;
  measure("an event", batches, 500, [](uint64_t i) { trace::record(event(i)); });
  measure("a stack of 16 frames", batches, 500, [](uint64_t) { trace::take_stack(); });
  measure("an event with a stack of 16 frames", batches, 500, [](uint64_t i) {
    auto what = event(i);
    what.stack = trace::take_stack();
    trace::record(what);
  });
}

}  // namespace

int main(int count, char** words) {
  const bool is_smoke = count > 1 && std::strcmp(words[1], "--smoke") == 0;
  char path[] = "/tmp/cupool-events-XXXXXX";
  const int file = mkstemp(path);
  struct stat made = {};
  if (file < 0 || fstat(file, &made) != 0) return 1;
  close(file);
  trace::Settings settings;
  settings.path = path;
  settings.device = made.st_dev;
  settings.inode = made.st_ino;
  trace::StackSettings stacks;
  stacks.depth = 16;
  if (!trace::begin_stacks(stacks)) std::printf("no libunwind: glibc's walker\n");
  if (!trace::begin({static_cast<uint64_t>(getpid()), "events", "", "", "", [](size_t) { return ""; }, 0},
                    settings))
    return 1;
  std::atomic<bool> is_over{false};
  std::thread gatherer([&] {
    int kept = -1;
    while (!is_over.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      trace::gather_now(&kept);
    }
  });
  deeper(20, is_smoke);
  is_over = true;
  gatherer.join();
  trace::finish();
  unlink(path);
  return 0;
}
