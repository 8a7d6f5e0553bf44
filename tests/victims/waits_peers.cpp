// Cases of `waits` with two ranks, each a context of its own, on one device or two. No rank's work waits for
// another one's but where the program makes it; what one rank may access of the other's memory is new memory
// as to its owner, its old life over.
#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "../bench/past_hooks.hpp"
#include "waits.hpp"

namespace waits {
namespace {

constexpr unsigned kByte = 1, kWord = 0x01010101;
constexpr size_t kSmall = 64 * kKiB, kMedium = 4 * kMiB, kLarge = 24 * kMiB;

// Nothing tells that a thread stands in a free, as it does under the driver until its partner has come. This
// gives it time to get through, as it does under a pool; a case that goes on too early ends well, too.
void give_time(const std::atomic<int>& reached, int wanted) {
  wait_a_while([&] { return reached >= wanted; });
}

void on_two_threads(const std::function<void(unsigned)>& rank) {
  std::thread other(rank, 1);
  rank(0);
  other.join();
}

// A collective of two ranks: in each round both launch a kernel that waits for the other's, and then free and
// allocate. With `turns` one rank is early, the other one in the next round; else they race.
void play_collective(const Pair& pair, size_t bytes, bool turns) {
  const int rounds = turns ? 4 : 24;
  const std::vector<Word> words(2 * static_cast<size_t>(rounds));
  Semaphore launched[2];
  std::atomic<int> had[2] = {0, 0};  // rounds whose memory was freed and allocated again
  on_two_threads([&](unsigned me) {
    const Device& d = pair[me];
    const unsigned partner = 1 - me;
    d.enter();
    const CUstream stream = d.stream();
    CUdeviceptr p = d.alloc(bytes);
    for (int round = 0; round < rounds; ++round) {
      const Word* const here = words.data() + 2 * static_cast<size_t>(round);
      const bool late = turns && static_cast<unsigned>(round) % 2 == me;
      if (late) {
        launched[partner].wait();
        give_time(had[partner], round + 1);
      }
      d.use(p, std::min(bytes, kMiB), 60, stream);
      d.fill(here[me].address(), sizeof kWord, kByte, stream);
      d.await(here[partner].address(), kWord, stream);
      if (turns && !late) launched[me].post();
      d.free(p);
      p = d.alloc(bytes);
      had[me] = round + 1;
    }
    d.free(p);
  });
}

int collective(Places places, size_t bytes, bool turns) {
  const Pair pair(places);
  play_collective(pair, bytes, turns);
  return pair.finish();
}

// The owner's memory is freed with work queued and allocated again; its first work then is the guest's.
void lend(const Device& owner, const Device& guest, size_t bytes, const std::function<void()>& meanwhile) {
  owner.enter();
  const CUstream old = owner.stream();
  for (int i = 0; i < 3; ++i) owner.live_and_die(bytes, {old});
  const CUdeviceptr p = owner.alloc(bytes);
  meanwhile();
  guest.enter();
  const CUstream stream = guest.stream();
  guest.fill(p, bytes, 61, stream);
  guest.spin(kLongNs / 20, stream);
  guest.check(p, bytes, 61, stream);
  MUST(cuStreamSynchronize(stream));
  owner.enter();
  owner.free(p);
}

// Memory that was handed out before anybody else could access it, and some more afterwards.
int access_comes_late(size_t bytes) {
  const Pair pair(Places::kDevices);
  lend(pair[0], pair[1], bytes, [&] { let_in(pair[1], pair[0]); });
  lend(pair[0], pair[1], bytes, [] {});
  lend(pair[1], pair[0], bytes, [&] { let_in(pair[0], pair[1]); });
  return pair.finish();
}

int access_one_way() {
  const Pair pair(Places::kDevices);
  let_in(pair[1], pair[0]);
  lend(pair[0], pair[1], kSmall, [] {});
  lend(pair[0], pair[1], kMedium, [] {});
  play_collective(pair, kLarge, true);
  return pair.finish();
}

// Access is taken back, or its context goes with it; the next context begins without any.
int context_made_anew() {
  const Pair pair(Places::kDevices);
  const Device& a = pair[0];
  int wrong = 0;
  for (const bool taken_back : {true, false, true}) {
    const Device b(1, true);
    b.enter();
    const CUstream stream = b.stream();
    b.live_and_die(kMedium, {stream});
    const CUdeviceptr p = b.alloc(kMedium);
    b.use(p, kMiB, 62, stream);
    lend(a, b, kMedium, [&] { let_in(b, a); });
    lend(b, a, kMedium, [&] { let_in(a, b); });
    if (taken_back) {
      b.enter();
      MUST(cuCtxDisablePeerAccess(a.context()));
      a.enter();
      MUST(cuCtxDisablePeerAccess(b.context()));
    }
    wrong += b.finish();
    MUST(cuCtxDestroy(b.context()));
    a.enter();
    const CUstream alone = a.stream();
    for (int i = 0; i < 3; ++i) a.live_and_die(kMedium, {alone});
  }
  return wrong + pair.finish() != 0 ? 1 : 0;
}

// Who is told that access is enabled has it, though the thread that enabled it is still on its way: here it
// has not come further than the driver.
int access_twice() {
  const Pair pair(Places::kDevices);
  const auto enable = bench::past_hooks(&cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess");
  if (enable == nullptr) die("no way past the hooks", 0);
  const auto let_in_again = [&](const Device& guest, const Device& owner) {
    guest.enter();
    MUST(enable(owner.context(), 0));
    if (cuCtxEnablePeerAccess(owner.context(), 0) != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
      die("access was not enabled already", 0);
  };
  lend(pair[0], pair[1], kMedium, [&] { let_in_again(pair[1], pair[0]); });
  lend(pair[1], pair[0], kMedium, [&] { let_in_again(pair[0], pair[1]); });
  return pair.finish();
}

// As libraries ask to find out. What the pool does from then on is what it did before (`waits_test.py` looks
// at its counters).
int access_is_refused() {
  MUST(cuInit(0));
  const Device d;
  const CUstream one = d.stream(), other = d.stream();
  if (cuCtxEnablePeerAccess(d.context(), 0) == CUDA_SUCCESS) die("access to oneself", 0);
  for (int i = 0; i < 20; ++i) {
    d.live_and_die(kMedium, {one});
    const CUdeviceptr p = d.alloc(kMedium);
    d.use(p, kMiB, 63, other);
    d.free(p);
  }
  return d.finish();
}

// A rank's kernel waits for what the other one does after copies out of a block that lives for long. The rank
// frees and allocates meanwhile. A copy needs no access.
int copies_between(Places places) {
  const Pair pair(places);
  constexpr int kRounds = 4;
  const std::vector<Word> words(kRounds);
  Semaphore launched;
  std::atomic<int> had{0};
  pair[0].enter();
  const CUdeviceptr lasting = pair[0].alloc(kSmall);
  pair[0].fill(lasting, kSmall, 64, nullptr);
  MUST(cuCtxSynchronize());
  const auto frees = [&](const Device& d) {
    const CUstream one = d.stream(), other = d.stream();
    CUevent used = nullptr;
    MUST(cuEventCreate(&used, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr p = d.alloc(kLarge);
    for (int round = 0; round < kRounds; ++round) {
      MUST(cuStreamWaitEvent(one, used, 0));
      d.await(words[static_cast<size_t>(round)].address(), kWord, one);
      d.use(p, kMiB, 65, one);
      launched.post();
      d.free(p);
      p = d.alloc(kLarge);
      d.use(p, kMiB, 66, other);
      MUST(cuEventRecord(used, other));
      had = round + 1;
    }
    d.free(p);
  };
  const auto copies = [&](const Device& d) {
    const CUstream stream = d.stream();
    const CUdeviceptr to = d.alloc(kSmall);
    for (int round = 0; round < kRounds; ++round) {
      launched.wait();
      give_time(had, round + 1);
      d.fill(to, kSmall, 67, stream);
      if (round % 2 == 0) {
        MUST(cuMemcpyPeerAsync(to, d.context(), lasting, pair[0].context(), kSmall, stream));
      } else {
        MUST(cuMemcpyDtoDAsync(to, lasting, kSmall, stream));
      }
      d.check(to, kSmall, 64, stream);
      d.fill(words[static_cast<size_t>(round)].address(), sizeof kWord, kByte, stream);
    }
    d.free(to);
  };
  on_two_threads([&](unsigned me) {
    pair[me].enter();
    me == 0 ? frees(pair[me]) : copies(pair[me]);
  });
  return pair.finish();
}

}  // namespace

Cases peer_cases() {
  Cases all;
  for (const Places places : {Places::kContexts, Places::kPeers}) {
    const std::string where = places == Places::kPeers ? "peers" : "contexts";
    for (const size_t bytes : {kSmall, kLarge}) {
      const std::string size = bytes == kSmall ? "64K" : "24M";
      all.push_back({"collective-" + where + "-" + size, [=] { return collective(places, bytes, true); }});
      all.push_back(
          {"collective-races-" + where + "-" + size, [=] { return collective(places, bytes, false); }});
    }
  }
  all.push_back({"peers-late-64K", [] { return access_comes_late(kSmall); }});
  all.push_back({"peers-late-4M", [] { return access_comes_late(kMedium); }});
  all.push_back({"peers-one-way", access_one_way});
  all.push_back({"peers-anew", context_made_anew});
  all.push_back({"peers-twice", access_twice});
  all.push_back({"peers-refused", access_is_refused});
  all.push_back({"copies-contexts", [] { return copies_between(Places::kContexts); }});
  all.push_back({"copies-devices", [] { return copies_between(Places::kDevices); }});
  return all;
}

}  // namespace waits
