// The threads that run host functions: as many as functions sleep at one time, and one more; each waits for
// its next function for ever. A function that returns soon is waited for, so that a run with one thread stays
// the same at every repetition; that it sleeps is read from /proc.
#include "sim/host_functions.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "sim/state.hpp"

namespace cupool::sim {
namespace {

constexpr unsigned kRoundUs = 20;
constexpr unsigned kMostRounds = 5000;  // then a function that is busy is left alone too

struct Job {
  std::function<void()> function;
  std::function<void()> finished;
  std::atomic<int> tid{0};
  std::atomic<bool> returned{false};
  std::atomic<bool> over{false};
};
using JobPtr = std::shared_ptr<Job>;

struct Helper {
  std::mutex mutex;
  std::condition_variable given;
  JobPtr job;
};

// Threads that are just handing a function to a helper. Such a thread may be one that waits for work, and the
// helper sleeps until it is woken: both look as if they never moved again.
std::atomic<int> starting{0};

// Never destroyed: a helper may sleep in a function when the process ends.
struct Helpers {
  std::mutex mutex;
  std::vector<Helper*> idle;
};
Helpers& helpers() {
  static Helpers* const all = new Helpers;
  return *all;
}

void serve(Helper* self) {
  // Host functions may not call the driver: the real one answers so.
  thread_state.in_callback = true;
  while (true) {
    JobPtr job;
    {
      std::unique_lock<std::mutex> lock(self->mutex);
      self->given.wait(lock, [&] { return self->job != nullptr; });
      job = std::exchange(self->job, nullptr);
    }
    job->tid.store(static_cast<int>(syscall(SYS_gettid)));
    job->function();
    job->returned.store(true);
    state().mutex.lock();
    job->finished();
    {
      const std::lock_guard<std::mutex> lock(helpers().mutex);
      helpers().idle.push_back(self);
    }
    state().mutex.unlock();
    job->over.store(true);
  }
}

void give(const JobPtr& job) {
  Helper* helper = nullptr;
  {
    const std::lock_guard<std::mutex> lock(helpers().mutex);
    if (!helpers().idle.empty()) {
      helper = helpers().idle.back();
      helpers().idle.pop_back();
    }
  }
  if (helper == nullptr) {
    helper = new Helper;
    std::thread(serve, helper).detach();
  }
  const std::lock_guard<std::mutex> lock(helper->mutex);
  helper->job = job;
  helper->given.notify_one();
}

bool sleeps(int tid) {
  char path[64];
  format_into(path, "/proc/self/task/{}/stat", tid);
  std::FILE* const file = std::fopen(path, "r");
  if (file == nullptr) return false;
  char text[256] = {};
  const std::size_t size = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  // The state follows the name, which may hold anything, a bracket too.
  const char* const end = size == 0 ? nullptr : std::strrchr(text, ')');
  return end != nullptr && end[1] == ' ' && end[2] == 'S';
}

void wait_a_while(const Job& job) {
  bool slept = false;
  for (unsigned round = 0; round < kMostRounds && !job.over.load(); ++round) {
    const int tid = job.tid.load();
    const bool sleeping = tid != 0 && sleeps(tid) && !job.returned.load();
    if (sleeping && slept) return;
    slept = sleeping;
    usleep(kRoundUs);
  }
}

}  // namespace

void start_host_function(const std::shared_ptr<Stream>& stream, const std::shared_ptr<const Work>& work,
                         std::function<void()> finished) {
  const auto job = std::make_shared<Job>();
  job->function = work->host;
  job->finished = [stream, finished = std::move(finished)] {
    stream->in_host_function = false;
    finished();
  };
  stream->in_host_function = true;
  starting.fetch_add(1);
  state().mutex.unlock();
  give(job);
  wait_a_while(*job);
  state().mutex.lock();
  starting.fetch_sub(1);
}

bool is_starting_host_function() { return starting.load() != 0; }

}  // namespace cupool::sim
