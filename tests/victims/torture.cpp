// Victim: as hard on a caching allocator as a valid program can be. Threads allocate, use, pass on and free
// memory on streams of every kind, free it with work queued, and check every byte on the device. Usage:
// torture [--seed N] [--threads N] [--ops N | --seconds S] [--most BYTES] [--live BYTES]
//                [--with list] [--without list] [--tolerant]
// Exit code: 0 all bytes right, 1 wrong bytes, 2 the driver refused a valid call (never when tolerant), 77 it
// wants two devices.
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "torture_worker.hpp"

using namespace torture;

namespace {

struct Name {
  const char* name;
  Feature feature;
};
constexpr Name kNames[] = {{"streams", kStreams},    {"per-thread", kPerThread}, {"destroy", kDestroy},
                           {"hand-over", kHandOver}, {"graphs", kGraphs},        {"pooled", kPooled},
                           {"copies", kCopies},      {"waits", kWaits},          {"host", kHost},
                           {"children", kChildren},  {"contexts", kContexts},    {"resets", kResets},
                           {"phases", kPhases},      {"crash", kCrash},          {"managed", kManaged},
                           {"words", kWords},        {"awaits", kAwaits},        {"rude", kRude},
                           {"beside", kBeside},      {"abandon", kAbandon},      {"peers", kPeers},
                           {"meets", kMeets},        {"apart", kApart}};

[[noreturn]] void usage(const char* what) {
  std::fprintf(stderr, "torture: %s is not something I know\n", what);
  std::exit(2);
}

unsigned features_in(const std::string& list) {
  unsigned features = 0;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    const std::string word = list.substr(at, comma - at);
    const unsigned before = features;
    for (const Name& name : kNames) features |= word == name.name ? name.feature : 0u;
    if (features == before) usage(word.c_str());
    at = comma + 1;
  }
  return features;
}

void read_options(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--tolerant") {
      options.tolerant = true;
      continue;
    }
    if (++i == argc) usage(argv[i - 1]);
    const char* const value = argv[i];
    const std::uint64_t number = std::strtoull(value, nullptr, 0);
    if (name == "--seed")
      options.seed = number;
    else if (name == "--threads")
      options.threads = static_cast<unsigned>(number);
    else if (name == "--ops")
      options.operations = number;
    else if (name == "--seconds")
      options.seconds = std::atof(value);
    else if (name == "--most")
      options.most_bytes = number;
    else if (name == "--live")
      options.live_bytes = number;
    else if (name == "--with")
      options.features |= features_in(value);
    else if (name == "--without")
      options.features &= ~features_in(value);
    else
      usage(name.c_str());
  }
  if (options.has_any(kMeets | kApart)) options.features |= kPeers;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void begin_world(World& world, Random& random) {
  MUST(cuDeviceGet(&world.device, static_cast<int>(world.place)));
  MUST(cuDevicePrimaryCtxRetain(&world.context, world.device));
  MUST(cuCtxSetCurrent(world.context));
  world.kernels.load();
  world.streams.create_all(random);
}

// Some programs let the devices access each other's memory at once, some in one direction only, some later.
void introduce(World& one, World& other) {
  one.other = &other;
  other.other = &one;
  if (options.has(kMeets)) one.meetings.prepare();
  if (options.has(kApart)) return;
  if (options.seed % 4 != 3) open_to_other(one);
  if (options.seed % 4 < 2) open_to_other(other);
}

// False: the driver would not say whether the memory was right. Tells of a byte that was wrong.
bool judge(World& world) {
  MUST(cuCtxSetCurrent(world.context));
  const auto wrong = world.kernels.verdict();
  if (wrong) world.tally.wrong += *wrong;
  if (world.kernels.wrong_so_far() != 0) world.history.tell(world.kernels.tell_first());
  return wrong.has_value();
}

// One phase: each device's context from its retain to its end. False: as above.
bool phase(const Api& api, Tally& tally, unsigned number, unsigned phases, double deadline) {
  auto shared = std::make_unique<Shared>(options.threads);
  std::deque<World> worlds;
  Random random(options.seed * 1000003 + number * 101);
  bool known = false;
  try {
    for (unsigned place = 0; place < (options.has(kPeers) ? 2u : 1u); ++place) {
      worlds.emplace_back(api, tally, *shared, place);
      begin_world(worlds.back(), random);
    }
    if (worlds.size() == 2) introduce(worlds[0], worlds[1]);
    // One thread is the main thread itself, so that runs with one thread can be repeated exactly.
    std::deque<Worker> workers;
    std::deque<std::thread> threads;
    for (unsigned i = 0; i < options.threads; ++i)
      workers.emplace_back(worlds[i % worlds.size()], i, random());
    const std::uint64_t operations = options.operations / phases + 1;
    for (unsigned i = 1; i < options.threads; ++i) {
      threads.emplace_back([&, i] { workers[i].run(operations, deadline); });
    }
    workers[0].run(operations, deadline);
    for (std::thread& thread : threads) thread.join();
    known = true;
    for (World& world : worlds) known = judge(world) && known;
    const bool reset = options.has(kResets) && one_in(random, 2);
    for (World& world : worlds) {
      if (!reset && !options.has(kResets)) world.streams.destroy_all();
      if (reset) MUST(cuDevicePrimaryCtxReset(world.device));
    }
  } catch (const Stop& stop) {
    std::fprintf(stderr, "torture: a phase stops: %s: driver error %d\n", stop.what, stop.result);
    ++tally.stopped;
  }
  for (World& world : worlds) {
    if (world.context != nullptr) cuDevicePrimaryCtxRelease(world.device);
  }
  return known;
}

}  // namespace

int main(int argc, char** argv) {
  read_options(argc, argv);
  if (cuInit(0) != CUDA_SUCCESS) return 2;
  int devices = 0;
  if (options.has(kPeers) && (cuDeviceGetCount(&devices) != CUDA_SUCCESS || devices < 2)) {
    std::printf("torture: skipped: one device\n");
    return 77;
  }
  const Api api;
  Tally tally;
  const unsigned phases = options.has(kResets) || options.has(kPhases) ? 4 : 1;
  const double begin = now();
  bool known = true;
  for (unsigned i = 0; i < phases; ++i) {
    const double deadline = options.seconds > 0 ? begin + options.seconds * (i + 1) / phases : 0;
    known = phase(api, tally, i, phases, deadline) && known;
  }
  std::printf("torture: seed=%llu ops=%lu allocs=%lu frees=%lu graphs=%lu full=%lu stopped=%lu wrong=%lu%s\n",
              static_cast<unsigned long long>(options.seed), tally.operations.load(),
              tally.allocations.load(), tally.frees.load(), tally.graphs.load(), tally.full.load(),
              tally.stopped.load(), tally.wrong.load(), known ? "" : " unread");
  std::fflush(stdout);
  if (tally.wrong != 0) return 1;
  return tally.stopped != 0 && !options.tolerant ? 2 : 0;
}
