// The neighbours' registry, with several Registry objects in one process standing for several processes.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "registry_place.hpp"
#include "written.hpp"

using namespace cupool;
using namespace cupool::neighbours;

namespace {

// The kernel's letter for the state of a thread of this process: S sleeps, Z is over.
char state_of(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t end = text.rfind(") ");
  return end == std::string::npos ? '?' : text[end + 2];
}
bool sleeps(pid_t thread) { return state_of(thread) == 'S'; }

// Whether this process has the file open.
bool has_open(const std::string& path) {
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(one.path(), error) == path) return true;
  }
  return false;
}

Ask everyone(uint64_t bytes) { return {kFirst, false, -1, bytes, 0}; }

}  // namespace

TEST_CASE("a process is worth asking whatever it shows, until it has answered") {
  const Place place;
  Registry one(place.directory());
  Registry two(place.directory());
  REQUIRE(one.open());
  REQUIRE(two.open());
  // It may have freed everything since.
  const Figures both[] = {figures(0), figures(0, kSecond, 1)};
  one.publish(both, 2);
  const uint64_t asked = registry_time();
  CHECK(two.count_others(&kFirst, asked) == 1);
  CHECK(two.count_others(&kSecond, asked) == 1);
  CHECK(two.count_others(nullptr, asked) == 2);
  one.publish(both, 1);
  CHECK(two.count_others(&kFirst, asked) == 0);
}

TEST_CASE("processes see each other's figures in the registry") {
  const Place place;
  Registry one(place.directory());
  Registry two(place.directory());
  REQUIRE(one.open());
  REQUIRE(two.open());
  const Figures both[] = {figures(100), figures(0, kSecond, 1)};
  one.publish(both, 2);
  const auto seen = entries(two);
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].pid == getpid());
  CHECK(seen[0].same_namespace);
  CHECK(seen[0].process == seen[1].process);
  CHECK(std::string(seen[0].program) == program_invocation_short_name);
  CHECK(seen[0].figures.cached == 100);
  CHECK(seen[0].figures.reserved == 110);
  CHECK(seen[1].figures.device == kSecond);
  CHECK(seen[1].figures.ordinal == 1);
  CHECK(one.count_others(nullptr, registry_time()) == 0);
  one.publish(both, 1);
  CHECK(entries(two).size() == 1);
  one.leave();
  CHECK(entries(two).empty());
}

TEST_CASE("the registry is for its user alone and leaves no descriptor open") {
  const Place place;
  Registry registry(place.directory());
  REQUIRE(registry.open());
  const Figures mine = figures(1);
  registry.publish(&mine, 1);
  struct stat about;
  REQUIRE(stat(place.file().c_str(), &about) == 0);
  CHECK((about.st_mode & 07777) == 0600);
  CHECK_FALSE(has_open(place.file()));
}

TEST_CASE("a request reaches the other processes once, and wakes a sleeping one") {
  const Place place;
  Registry asking(place.directory());
  Registry asked(place.directory());
  REQUIRE(asking.open());
  REQUIRE(asked.open());
  const uint32_t seen = asked.bell();
  bool rung = false;
  std::atomic<pid_t> number{0};
  std::thread sleeper([&] {
    number = static_cast<pid_t>(syscall(SYS_gettid));
    rung = asked.wait(seen, kLong);
  });
  while (number == 0 || !sleeps(number)) std::this_thread::yield();
  REQUIRE(asking.ask(everyone(1000)));
  sleeper.join();
  CHECK(rung);
  CHECK(asked.bell() != seen);
  uint64_t serial = 0;
  Ask got[4];
  REQUIRE(asked.asks_since(&serial, got, 4) == 1);
  CHECK(got[0].bytes == 1000);
  CHECK(got[0].device == kFirst);
  CHECK(asked.asks_since(&serial, got, 4) == 0);
  uint64_t own = 0;
  CHECK(asking.asks_since(&own, got, 4) == 0);
}

TEST_CASE("a request for one process is not another's, and the newest come first") {
  const Place place;
  Registry asking(place.directory());
  Registry asked(place.directory());
  REQUIRE(asking.open());
  REQUIRE(asked.open());
  asking.ask({kFirst, true, getpid() + 1, 1, 0});
  for (uint64_t i = 1; i <= 100; ++i) asking.ask({kFirst, true, i == 99 ? getpid() : -1, i, 0});
  uint64_t serial = 0;
  Ask got[3];
  REQUIRE(asked.asks_since(&serial, got, 3) == 3);
  CHECK(got[0].bytes == 100);
  CHECK(got[1].bytes == 99);
  CHECK(got[2].bytes == 98);
  CHECK(asked.asks_since(&serial, got, 3) == 0);
}

TEST_CASE("a wait on the registry ends with its time") {
  const Place place;
  Registry registry(place.directory());
  REQUIRE(registry.open());
  CHECK_FALSE(registry.wait(registry.bell(), 1'000'000));
  Registry none("/nonexistent");
  CHECK_FALSE(none.open());
  CHECK_FALSE(none.wait(0, 1'000'000));
}

TEST_CASE("a bell that is rung for ever makes no thread spin") {
  const Place place;
  Registry registry(place.directory());
  REQUIRE(registry.open());
  const uint32_t wrong = registry.bell() + 1;
  const uint64_t begin = now_ns();
  int turns = 0;
  while (now_ns() - begin < 500'000'000) turns += registry.wait(wrong, kLong) ? 1 : 0;
  CHECK(turns <= 8 + 11);
}

TEST_CASE("an entry of a process that was killed is not shown, and its place is used again") {
  const Place place;
  Registry registry(place.directory());
  REQUIRE(registry.open());
  for (int round = 0; round < 3; ++round) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t child = fork();
    if (child == 0) {
      Registry own(place.directory());
      std::vector<Figures> many(Registry::kMostDevices, figures(1));
      const bool good = own.open();
      own.publish(many.data(), many.size());
      const char word = good ? 'y' : 'n';
      if (write(ready[1], &word, 1) != 1) _exit(1);
      for (;;) pause();
    }
    char word = 0;
    REQUIRE(read(ready[0], &word, 1) == 1);
    CHECK(word == 'y');
    CHECK(entries(registry).size() == Registry::kMostDevices);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    CHECK(entries(registry).empty());
    CHECK(registry.count_others(&kFirst, registry_time()) == 0);
    close(ready[0]);
    close(ready[1]);
  }
}

TEST_CASE("a registry full of dead entries has room for the living") {
  const Place place;
  Registry registry(place.directory());
  REQUIRE(registry.open());
  for (uint32_t slot = 0; slot < Registry::kMostEntries; ++slot) {
    SlotRecord record = {};
    record.who = own_identity();
    record.who.start += 1;
    record.figures = figures(1);
    seal(&record, slot_at(slot));
    place.damage(slot_at(slot), &record, sizeof record);
  }
  const Figures mine[] = {figures(5), figures(6, kSecond)};
  registry.publish(mine, 2);
  CHECK(entries(registry).size() == 2);
}

TEST_CASE("a process learns whether its figures are in the registry") {
  const Place place;
  Registry registry(place.directory());
  const Figures mine = figures(5);
  CHECK_FALSE(registry.publish(&mine, 1));
  REQUIRE(registry.open());
  SlotRecord other = {};
  other.who = own_identity();
  other.figures = figures(1);
  for (uint32_t slot = 0; slot < Registry::kMostEntries; ++slot) {
    seal(&other, slot_at(slot));
    place.damage(slot_at(slot), &other, sizeof other);
  }
  CHECK_FALSE(registry.publish(&mine, 1));
  const SlotRecord nothing = {};
  place.damage(slot_at(77), &nothing, sizeof nothing);
  CHECK(registry.publish(&mine, 1));
  CHECK(registry.publish(&mine, 1));
  REQUIRE(truncate(place.file().c_str(), 0) == 0);
  CHECK_FALSE(registry.publish(&mine, 1));
}

TEST_CASE("a registry that cannot be used is logged once until it is open again") {
  const test::RestoreLevel restore;
  log::set_level(log::Level::kVerbose);
  const Place place;
  Registry registry(place.directory());
  const auto log_of = [&](bool expected) {
    return test::written_by([&] {
      registry.join();
      for (int i = 0; i < 3; ++i) CHECK(registry.open() == expected);
    });
  };
  REQUIRE(mkdir(place.file().c_str(), 0700) == 0);
  CHECK(log_of(false) == "cupool: the neighbours' registry cannot be used: it cannot be opened\n");
  CHECK(log_of(false).empty());
  REQUIRE(rmdir(place.file().c_str()) == 0);
  CHECK(log_of(true).empty());
  REQUIRE(truncate(place.file().c_str(), 100) == 0);
  CHECK(log_of(false) == "cupool: the neighbours' registry cannot be used: it has another size\n");
}

#if defined(CUPOOL_CHECK_LOCKS)
// The check of ranks ends the process where a lock is waited for under this one.
TEST_CASE("a process that ends in a signal handler, over a lock of ours, does not wait for the registry's") {
  const Place place;
  Registry registry(place.directory());
  REQUIRE(registry.open());
  const Figures mine = figures(1);
  registry.publish(&mine, 1);
  REQUIRE(entries(registry).size() == 1);
  {
    Lock interrupted{Rank::kHostMemory};
    const Guard hold(interrupted);
    registry.leave();
  }
  CHECK(entries(registry).empty());
}
#endif

TEST_CASE("a fork child leaves its parent's entries alone") {
  const Place place;
  Registry registry(place.directory());
  REQUIRE(registry.open());
  const Figures mine = figures(5);
  registry.publish(&mine, 1);
  const pid_t child = fork();
  if (child == 0) {
    registry.forget_after_fork();
    registry.leave();
    registry.publish(&mine, 1);
    _exit(entries(registry).size() == 2 ? 0 : 1);
  }
  CHECK(status_of(child) == 0);
  CHECK(entries(registry).size() == 1);
}

TEST_CASE("a fork child does not keep the registry's lock") {
  const Place place;
  RegistryFile file(place.directory());
  REQUIRE(file.connect(true));
  const Signal over;
  pid_t child = 0;
  {
    const OpenFile open(file);
    REQUIRE(open.try_exclusive());
    child = fork();
    if (child == 0) {
      over.wait();
      _exit(0);
    }
  }
  {
    const OpenFile again(file);
    CHECK(again.try_exclusive());
  }
  over.send();
  CHECK(status_of(child) == 0);
}

TEST_CASE("a fork child knows itself before it opens the registry again") {
  const Place place;
  Registry registry(place.directory());
  REQUIRE(registry.open());
  const Figures mine = figures(5);
  registry.publish(&mine, 1);
  const pid_t child = fork();
  if (child == 0) {
    registry.forget_after_fork();
    _exit(entries(registry).size() == 1 && registry.count_others(&kFirst, registry_time()) == 1 ? 0 : 1);
  }
  CHECK(status_of(child) == 0);
}

TEST_CASE("a process whose first thread is over is still in the registry") {
  const Place place;
  const Signal first_is_over;
  const Signal over;
  const pid_t child = fork();
  if (child == 0) {
    static Registry own(place.directory());
    own.open();
    const Figures mine = figures(5);
    own.publish(&mine, 1);
    std::thread([&] {
      while (state_of(getpid()) != 'Z') std::this_thread::yield();
      first_is_over.send();
      over.wait();
      _exit(0);
    }).detach();
    // Of this thread alone: pthread_exit would unwind through the test's frames.
    syscall(SYS_exit, 0);
  }
  Registry registry(place.directory());
  REQUIRE(registry.open());
  first_is_over.wait();
  CHECK(entries(registry).size() == 1);
  over.send();
  CHECK(status_of(child) == 0);
}

TEST_CASE("a thread that is cancelled inside open leaves the registry's lock free") {
  const Place place;
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    Registry registry(place.directory());
    const auto open_cancelled = [](void* argument) -> void* {
      pthread_cancel(pthread_self());
      static_cast<Registry*>(argument)->open();
      return nullptr;
    };
    pthread_t thread;
    pthread_create(&thread, nullptr, open_cancelled, &registry);
    pthread_join(thread, nullptr);
    registry.leave();
    _exit(0);
  }
  CHECK(status_of(child) == 0);
}

TEST_CASE("entries of another pid namespace are believed for some seconds") {
  const Place place;
  Registry registry(place.directory());
  REQUIRE(registry.open());
  SlotRecord record = {};
  record.who = own_identity();
  record.who.pid_namespace += 1;
  record.figures = figures(1);
  const auto put = [&](uint64_t stamp) {
    record.stamp = stamp;
    seal(&record, slot_at(7));
    place.damage(slot_at(7), &record, sizeof record);
  };
  put(registry_time());
  REQUIRE(entries(registry).size() == 1);
  CHECK_FALSE(entries(registry)[0].same_namespace);
  put(registry_time() + kLong);
  CHECK(entries(registry).empty());
  put(registry_time() - std::min(registry_time(), kLong));
  CHECK(entries(registry).empty());
}

TEST_CASE("what other processes write is cut to size") {
  const Place place;
  Registry registry(place.directory());
  REQUIRE(registry.open());
  SlotRecord record = {};
  record.who = own_identity();
  record.figures = figures(UINT64_MAX);
  record.figures.reused = UINT64_MAX;
  memset(record.program, '\033', sizeof record.program);
  seal(&record, slot_at(3));
  place.damage(slot_at(3), &record, sizeof record);
  const auto seen = entries(registry);
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].figures.cached == uint64_t{1} << 48);
  CHECK(seen[0].figures.reused == uint64_t{1} << 62);
  CHECK(std::string(seen[0].program) == std::string(63, '?'));
  record.figures.ordinal = -1;
  seal(&record, slot_at(3));
  place.damage(slot_at(3), &record, sizeof record);
  CHECK(entries(registry).empty());
}

TEST_CASE("a torn entry or request is skipped") {
  const Place place;
  Registry one(place.directory());
  Registry two(place.directory());
  REQUIRE(one.open());
  REQUIRE(two.open());
  const Figures mine = figures(5);
  one.publish(&mine, 1);
  one.ask(everyone(1));
  place.damage(slot_at(0) + 100, "x", 1);
  place.damage(ask_at(1) + 100, "x", 1);
  CHECK(entries(two).empty());
  uint64_t serial = 0;
  Ask got[1];
  CHECK(two.asks_since(&serial, got, 1) == 0);
  one.publish(&mine, 1);
  CHECK(entries(two).size() == 1);
}

TEST_CASE("a registry full of noise costs nothing but the registry") {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    const Place place;
    Registry registry(place.directory());
    REQUIRE(registry.open());
    std::mt19937_64 random(seed);
    std::vector<uint64_t> noise(kFileBytes / 8);
    for (uint64_t& word : noise) word = random();
    // With the beginning spared in half of the worlds, the rest is looked at.
    const uint64_t from = seed % 2 == 0 ? kBellAt : 0;
    place.damage(from, noise.data(), kFileBytes - from);
    const Figures mine = figures(5);
    registry.publish(&mine, 1);
    registry.ask(everyone(1));
    uint64_t serial = random();
    Ask got[8];
    CHECK(registry.asks_since(&serial, got, 8) == 0);
    CHECK(registry.count_others(&kFirst, registry_time()) == 0);
    CHECK(entries(registry).size() <= 1);
    registry.wait(registry.bell(), 1000);
    Registry later(place.directory());
    CHECK(later.open() == (from != 0));
    if (from != 0) {
      later.ask(everyone(2));
      uint64_t since = 0;
      CHECK(registry.asks_since(&since, got, 8) == 1);
    }
    registry.leave();
    CHECK(entries(registry).empty());
  }
}

TEST_CASE("a registry that is truncated is lost, and begins anew") {
  const Place place;
  Registry registry(place.directory());
  Registry other(place.directory());
  REQUIRE(registry.open());
  REQUIRE(other.open());
  const Figures mine = figures(5);
  registry.publish(&mine, 1);
  REQUIRE(truncate(place.file().c_str(), 0) == 0);
  CHECK_FALSE(registry.wait(1, kLong));
  CHECK_FALSE(registry.is_open());
  registry.publish(&mine, 1);
  CHECK_FALSE(registry.ask(everyone(1)));
  CHECK(registry.open());
  registry.publish(&mine, 1);
  REQUIRE(other.open());
  CHECK(entries(other).size() == 1);
  REQUIRE(truncate(place.file().c_str(), 100) == 0);
  CHECK(entries(other).empty());
  CHECK_FALSE(other.open());
}

TEST_CASE("a registry that was removed is made again") {
  const Place place;
  Registry registry(place.directory());
  REQUIRE(registry.open());
  REQUIRE(unlink(place.file().c_str()) == 0);
  Registry other(place.directory());
  CHECK_FALSE(other.join());
  REQUIRE(other.open());
  const Figures mine = figures(5);
  registry.publish(&mine, 1);
  CHECK_FALSE(registry.is_open());
  REQUIRE(registry.open());
  registry.publish(&mine, 1);
  CHECK(entries(other).size() == 1);
  const uint32_t seen = registry.bell();
  other.ask(everyone(1));
  CHECK(registry.wait(seen, kLong));
}

TEST_CASE("a limit on the size of files costs the registry alone") {
  const Place place;
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &none);
    Registry registry(place.directory());
    _exit(registry.open() ? 1 : 0);
  }
  CHECK(status_of(child) == 0);
}
