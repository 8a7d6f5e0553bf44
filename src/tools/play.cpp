// See play.hpp. The driver's functions are found as a program finds them, so that the library, if it stands
// in front of this process, serves them. Numbers of flags are the driver's own and never change.
#include "tools/play.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/say.hpp"
#include "replay/relay.hpp"
#include "tools/json.hpp"
#include "tools/launch.hpp"
#include "tools/report.hpp"
#include "tools/scratch.hpp"

namespace cupool::tools {

namespace {

using replay::Do;
using replay::Step;
using Pointer = unsigned long long;
using Stream = void*;
constexpr unsigned kNonBlocking = 1;
constexpr uint64_t kLegacy = 1;

template <typename Function>
struct Call {
  Call(void* library, const char* symbol) : function(reinterpret_cast<Function*>(dlsym(library, symbol))) {}
  template <typename... Args>
  int operator()(Args... args) const {
    return function == nullptr ? 999 : function(args...);
  }
  Function* const function;
};

struct Calls {
  explicit Calls(void* library) : library(library) {}
  void* const library;
  const Call<int(unsigned)> init{library, "cuInit"};
  const Call<int(int*)> count{library, "cuDeviceGetCount"};
  const Call<int(int*, int)> device{library, "cuDeviceGet"};
  const Call<int(void**, int)> retain{library, "cuDevicePrimaryCtxRetain"};
  const Call<int(void*)> enter{library, "cuCtxSetCurrent"};
  const Call<int()> synchronize{library, "cuCtxSynchronize"};
  const Call<int(size_t*, size_t*)> memory{library, "cuMemGetInfo_v2"};
  const Call<int(Pointer*, size_t)> allocate{library, "cuMemAlloc_v2"};
  const Call<int(Pointer)> free{library, "cuMemFree_v2"};
  const Call<int(Pointer, unsigned char, size_t, Stream)> set{library, "cuMemsetD8Async"};
  const Call<int(Stream*, unsigned)> create{library, "cuStreamCreate"};
  const Call<int(Stream)> wait{library, "cuStreamSynchronize"};
};

class Playing {
 public:
  Playing(const replay::Program& program, const Calls& calls, bool one_thread)
      : program_(program),
        calls_(calls),
        one_thread_(one_thread),
        held_(program.blocks, 0),
        sizes_(program.blocks, 0),
        live_(program.places.size()),
        streams_(program.places.size()),
        relay_(program.threads + 1) {}

  // A sentence if the devices are not there.
  std::string open() {
    int devices = 0;
    if (calls_.init(0U) != 0 || calls_.count(&devices) != 0) return "the driver finds no device";
    if (devices < program_.devices())
      return make_text("the trace is of {} devices, and {} are here", program_.devices(), devices);
    for (const replay::Place& place : program_.places) {
      int device = 0;
      void* context = nullptr;
      if (calls_.device(&device, place.device) != 0 || calls_.retain(&context, device) != 0)
        return "the driver gives no context";
      contexts_.push_back(context);
    }
    return "";
  }

  void play() {
    enter(0);
    size_t total = 0;
    calls_.memory(&free_at_first_, &total);
    const auto begin = std::chrono::steady_clock::now();
    relay_.run(next_, play_);
    enter(0);
    calls_.synchronize();
    const auto ns = std::chrono::steady_clock::now() - begin;
    print(Answer{{"ns", std::chrono::duration_cast<std::chrono::nanoseconds>(ns).count()},
                 {"allocations", allocations_},
                 {"frees", frees_},
                 {"failed_allocations", failed_},
                 {"peak_asked_bytes", peak_},
                 {"peak_taken_bytes", most_taken_}});
  }

 private:
  size_t next() const {
    if (at_ == program_.steps.size()) return replay::kOver;
    const uint16_t thread = program_.steps[at_].thread;
    return one_thread_ ? 0 : thread == replay::kNoThread ? program_.threads : thread;
  }
  void enter(size_t place) {
    thread_local size_t here = ~size_t{0};
    if (here != place) calls_.enter(contexts_[place]);
    here = place;
  }
  Stream stream_of(const Step& step) {
    if (step.stream <= kLegacy) return nullptr;
    Stream& stream = streams_[step.place][step.stream];
    if (stream == nullptr) calls_.create(&stream, kNonBlocking);
    return stream;
  }
  void wait_for(size_t place, uint64_t lane) {
    Step step;
    step.place = static_cast<uint8_t>(place);
    step.stream = lane;
    lane == 0 ? calls_.synchronize() : calls_.wait(stream_of(step));
  }

  void play_next() {
    const Step& step = program_.steps[at_++];
    if (step.what == Do::kThreadEnds && !one_thread_) return relay_.end_this_thread();
    if (step.place >= contexts_.size()) return;
    enter(step.place);
    switch (step.what) {
      case Do::kAllocate:
        return allocate(step);
      case Do::kFree:
        if (held_[step.block] == 0) return;
        live_[step.place].erase(step.block);
        calls_.free(std::exchange(held_[step.block], 0));
        bytes_ -= sizes_[step.block];
        ++frees_;
        return;
      case Do::kWork:
        // A piece of work on memory that is held: its first byte.
        if (!live_[step.place].empty())
          calls_.set(held_[*live_[step.place].rbegin()], static_cast<unsigned char>(0), size_t{1},
                     stream_of(step));
        return;
      case Do::kWait:
        return wait_for(step.place, step.stream);
      case Do::kWaitBegins:
        waits_[step.block] = step.stream;
        return;
      case Do::kWaitEnds:
        return wait_for(step.place, waits_[step.block]);
      default:
        return;
    }
  }
  void allocate(const Step& step) {
    Pointer pointer = 0;
    if (calls_.allocate(&pointer, step.bytes) != 0) {
      ++failed_;
      return;
    }
    ++allocations_;
    held_[step.block] = pointer;
    sizes_[step.block] = step.bytes;
    live_[step.place].insert(step.block);
    bytes_ += step.bytes;
    if (bytes_ <= peak_) return;
    peak_ = bytes_;
    // Asked where the program holds more than ever, and a step of the driver's may have been taken.
    constexpr uint64_t kStep = 1 << 20;
    if (peak_ < asked_at_ + kStep) return;
    asked_at_ = peak_;
    size_t free = 0;
    size_t total = 0;
    if (program_.devices() == 1 && calls_.memory(&free, &total) == 0 && free < free_at_first_)
      most_taken_ = std::max(most_taken_, free_at_first_ - free);
  }

  const replay::Program& program_;
  const Calls& calls_;
  const bool one_thread_;
  size_t at_ = 0;
  std::vector<void*> contexts_;
  std::vector<Pointer> held_;
  std::vector<uint64_t> sizes_;
  std::vector<std::set<uint32_t>> live_;
  std::vector<std::map<uint64_t, Stream>> streams_;
  std::map<uint32_t, uint64_t> waits_;
  uint64_t allocations_ = 0, frees_ = 0, failed_ = 0, bytes_ = 0, peak_ = 0, asked_at_ = 0;
  size_t free_at_first_ = 0, most_taken_ = 0;
  replay::Relay relay_;
  const std::function<size_t()> next_ = [this] { return next(); };
  const std::function<void()> play_ = [this] { play_next(); };
};

[[noreturn]] void become_player(const std::string& path, const Setting* setting, const std::string& report,
                                int out) {
  Scratch::become_child();
  if (setting != nullptr) {
    if (!preload_library()) _exit(1);
    for (const std::string& entry : *setting) set_option(entry.c_str());
    set_option("CUPOOL_STATS=json");
    set_option(("CUPOOL_STATS_FILE=" + report).c_str());
    set_option("CUPOOL_OOM_REPORTS=0");
  }
  dup2(out, STDOUT_FILENO);
  std::string words[] = {"cupool", "replay", "--play", path};
  char* const pointers[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  execv("/proc/self/exe", pointers);
  _exit(127);
}

}  // namespace

int play_here(const NamedProgram& one) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    say(stderr, "cupool: cannot play on a device: {}\n", dlerror());
    return 1;
  }
  // For good: its threads refer to it.
  auto* const playing = new Playing(one.program, *new Calls(library), one.conditions.one_thread);
  const std::string error = playing->open();
  if (!error.empty()) {
    say(stderr, "cupool: cannot play on a device: {}\n", error);
    return 1;
  }
  playing->play();
  return 0;
}

std::optional<replay::Figures> play_on_device(const std::string& path, const Setting* setting,
                                              std::string* error) {
  const Scratch scratch;
  if (!scratch.made()) {
    *error = "no temporary directory can be made";
    return std::nullopt;
  }
  const std::string report = scratch.path() + "/report";
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    *error = strerror(errno);
    return std::nullopt;
  }
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) become_player(path, setting, report, ends[1]);
  close(ends[1]);
  std::string said;
  char piece[4096];
  for (ssize_t got = 0; (got = read(ends[0], piece, sizeof piece)) > 0 || (got < 0 && errno == EINTR);)
    said.append(piece, got > 0 ? static_cast<size_t>(got) : 0);
  close(ends[0]);
  const int status = Scratch::wait_for(child);
  const auto answer = nlohmann::json::parse(said, nullptr, false);
  if (status != 0 || !answer.is_object()) {
    *error = "the run on the device failed";
    return std::nullopt;
  }
  const auto count = [&](const char* name) { return answer.value(name, uint64_t{0}); };
  replay::Figures figures;
  figures.peak_live = count("peak_asked_bytes");
  figures.allocations = count("allocations");
  figures.failed = count("failed_allocations");
  figures.ns = count("ns");
  figures.peak_reserved = figures.most_on_a_device = count("peak_taken_bytes");
  figures.driver_calls = figures.allocations + count("frees");
  if (setting == nullptr) return figures;
  const auto counters = Report::read(report.c_str(), error);
  if (!counters) return std::nullopt;
  figures.peak_reserved = figures.most_on_a_device = counters->count("peak_reserved_bytes");
  figures.driver_calls = counters->count("segments_allocated") + counters->count("segments_released") +
                         counters->count("chunks_mapped") + counters->count("chunks_unmapped");
  figures.hits = counters->count("hits_at_once") + counters->count("hits_after_wait");
  figures.waits =
      counters->count("stream_waits") + counters->count("context_waits") + counters->count("pool_waits");
  figures.last_reserved = counters->count("reserved_bytes");
  return figures;
}

}  // namespace cupool::tools
