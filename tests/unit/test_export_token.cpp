// Export tokens, and the exchange of an export token for descriptors, over real sockets. Chunks are files in
// memory that hold their number.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/after_fork.hpp"
#include "base/clock.hpp"
#include "share/client.hpp"
#include "share/server.hpp"
#include "share/socket_file.hpp"

using namespace cupool;
using namespace cupool::share;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kForksStartThreads = false;  // its runtime ends such a child
#else
constexpr bool kForksStartThreads = true;
#endif

// Where the exporters of this test have their sockets.
class Place {
 public:
  Place() {
    char name[] = "/tmp/cupool-token-XXXXXX";
    directory_ = mkdtemp(name);
    setenv("CUPOOL_NEIGHBOURS_DIR", directory_.c_str(), 1);
    // Other users may connect as far as the directory is concerned.
    std::filesystem::permissions(directory_, std::filesystem::perms::all);
  }
  ~Place() { std::filesystem::remove_all(directory_); }
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string path(const ExportToken& token) const {
    char name[48];
    snprintf(name, sizeof name, "cupool-%u-%016llx", token.pid,
             static_cast<unsigned long long>(token.instance));
    return path(name);
  }

 private:
  std::string directory_;
};
const Place place;

constexpr uint64_t kChunk = 2 << 20;
constexpr uint64_t kStart = 0x7f00'0000'4000;
constexpr uint64_t kOffset = 0x4000;

class Chunks : public Source {
 public:
  explicit Chunks(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      files_.push_back(memfd_create("chunk", MFD_CLOEXEC));
      REQUIRE(pwrite(files_.back(), &i, sizeof i, 0) == sizeof i);
    }
  }
  ~Chunks() {
    for (const int file : files_) close(file);
  }
  bool lend(const ExportToken& token, uint32_t first, uint32_t most, Loan* out) override {
    ++asked;
    while (stands) std::this_thread::yield();
    if (token.life != life || first >= files_.size()) return false;
    const auto total = static_cast<uint32_t>(files_.size());
    out->reply = {0, total, std::min(most, total - first), kOffset, {}};
    for (uint32_t i = 0; i < out->reply.count; ++i) {
      out->reply.bytes[i] = kChunk * (first + i + 1);
      out->descriptors[i] = fcntl(files_[first + i], F_DUPFD_CLOEXEC, 0);
    }
    return true;
  }

  std::atomic<uint64_t> life{77};
  std::atomic<int> asked{0};
  std::atomic<bool> stands{false};  // as in a driver that does not answer

 private:
  std::vector<int> files_;
};

// Checks what arrives.
class Collector : public Taker {
 public:
  bool take(uint64_t bytes, uint64_t offset, int descriptor) override {
    uint32_t number = ~0u;
    good = good && pread(descriptor, &number, sizeof number, 0) == sizeof number && number == taken;
    good = good && bytes == kChunk * (taken + 1) && offset == kOffset;
    ++taken;
    return taken < stop_after;
  }
  uint32_t taken = 0;
  uint32_t stop_after = ~0u;
  bool good = true;
};

// A server that lives as long as the process, as the thread may.
struct Exporter {
  explicit Exporter(uint32_t count, const Server::Settings& settings = {})
      : chunks(count), server(chunks, settings) {}
  ~Exporter() {
    ExportToken token = this->token();
    server.stop();
    Collector none;
    // Once nobody answers under its name, the thread is past its last use of this object but one store.
    while (fetch(token, none) != Fetched::kRefused) std::this_thread::yield();
    int socket = -1;
    while (connect_to(token.pid, token.instance, &socket) == Connected::kYes) {
      close(socket);
      std::this_thread::yield();
    }
  }
  Handle handle() {
    Handle handle;
    REQUIRE(server.offer(kStart, 4096, 77, &handle));
    return handle;
  }
  ExportToken token() {
    ExportToken token;
    REQUIRE(from_handle(handle(), &token));
    return token;
  }
  int connect() {
    const ExportToken name = token();
    int socket = -1;
    Connected how;
    while ((how = connect_to(name.pid, name.instance, &socket)) == Connected::kBusy)
      std::this_thread::yield();
    REQUIRE(how == Connected::kYes);
    return socket;
  }
  Chunks chunks;
  Server server;
};

// Objects are never destroyed: the thread of a server that was just stopped may still be on its last lines.
template <typename... Args>
Exporter& make(Args... args) {
  return *new Exporter(args...);
}

size_t open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// Waits until as many are open: the server's connections end when it notices.
bool falls_to(size_t count) {
  const uint64_t begin = now_ns();
  while (open_files() > count) {
    if (now_ns() - begin > 10'000'000'000) return false;
    std::this_thread::yield();
  }
  return true;
}

// Waits for the other end to hang up.
bool is_hung_up(int socket) {
  char bytes[1024];
  for (;;) {
    pollfd one{socket, POLLIN, 0};
    if (poll(&one, 1, 10'000) <= 0) return false;
    if (recv(socket, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) return true;
  }
}

bool can_fetch(const ExportToken& token, uint32_t count) {
  Collector collector;
  return fetch(token, collector) == Fetched::kAll && collector.good && collector.taken == count;
}

// Runs `work` in a fork child; true if it returned true.
template <typename F>
bool in_child(F&& work) {
  const pid_t child = fork();
  if (child == 0) {
    // The thread that serves may have been at work.
    forget_after_fork();
    _exit(work() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("an export token says what was written into it and ends as the driver's handles do") {
  const ExportToken before{0x1234'5678'9abc'def1, 4711, kStart, 5, 1ull << 62, 99};
  const Handle handle = to_handle(before);
  ExportToken after;
  REQUIRE(from_handle(handle, &after));
  CHECK(after == before);
  for (size_t i = 56; i < 64; ++i) CHECK(handle[i] == 0);
  // No field of small numbers shows as zeros, which the driver might take for a field of its own.
  CHECK(std::count(handle.begin(), handle.begin() + 56, 0) < 5);
}

TEST_CASE("every change of an export token is noticed by the process that wrote it") {
  Exporter& exporter = make(1);
  const Handle handle = exporter.handle();
  std::mt19937_64 random(1);
  int believed = 0;
  const auto attempt = [&](const Handle& altered) {
    ExportToken token;
    if (altered != handle && from_handle(altered, &token)) believed += exporter.server.is_own(token);
  };
  for (size_t bit = 0; bit < handle.size() * 8; ++bit) {
    Handle altered = handle;
    altered[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    attempt(altered);
  }
  for (int i = 0; i < 20000; ++i) {
    Handle altered = handle;
    for (uint64_t n = random() % 6 + 1; n > 0; --n)
      altered[8 + random() % 48] = static_cast<unsigned char>(random());
    attempt(altered);
  }
  CHECK(believed == 0);
  CHECK(exporter.server.is_own(exporter.token()));
}

TEST_CASE("a check is not that of another block or of another process") {
  const Key key{1, 2};
  ExportToken token{3, 4, kStart, 4096, 77};
  const uint64_t check = check_of(token, key);
  CHECK(check != check_of(token, {2, 1}));
  for (uint64_t* field : {&token.instance, &token.start, &token.bytes, &token.life}) {
    ++*field;
    CHECK(check != check_of(token, key));
    --*field;
  }
  CHECK(check == check_of(token, key));
}

TEST_CASE("a block has the same export token again, and no two processes write the same") {
  Exporter& one = make(1);
  Exporter& other = make(1);
  CHECK(one.handle() == one.handle());
  CHECK(one.handle() != other.handle());
  CHECK_FALSE(one.server.is_own(other.token()));
}

TEST_CASE("an export token is exchanged for all descriptors of its block in their order") {
  for (const uint32_t count : {1u, 31u, 32u, 33u, 100u}) {
    Exporter& exporter = make(count);
    const ExportToken token = exporter.token();
    const size_t before = open_files();
    CHECK(can_fetch(token, count));
    CHECK(can_fetch(token, count));
    CHECK(falls_to(before));
  }
}

TEST_CASE("a block that is gone is refused") {
  Exporter& exporter = make(40);
  const ExportToken token = exporter.token();
  exporter.chunks.life = 78;
  Collector collector;
  CHECK(fetch(token, collector) == Fetched::kRefused);
  CHECK(collector.taken == 0);
}

TEST_CASE("a taker that stops gets no more and leaves nothing open") {
  Exporter& exporter = make(40);
  const ExportToken token = exporter.token();
  const size_t before = open_files();
  Collector collector;
  collector.stop_after = 35;
  CHECK(fetch(token, collector) == Fetched::kStopped);
  CHECK(collector.taken == 35);
  CHECK(falls_to(before));
}

TEST_CASE("a changed export token gets nothing, and its exporter asks nobody about it") {
  Exporter& exporter = make(1);
  ExportToken token = exporter.token();
  ++token.start;
  Collector collector;
  CHECK(fetch(token, collector) == Fetched::kRefused);
  CHECK(exporter.chunks.asked == 0);
}

TEST_CASE("another user gets nothing") {
  Exporter& exporter = make(1, Server::Settings{.user = geteuid() + 1});
  Collector collector;
  CHECK(fetch(exporter.token(), collector) == Fetched::kRefused);
  CHECK(exporter.chunks.asked == 0);
}

TEST_CASE("a process of another user gets nothing where users can be changed") {
  if (geteuid() != 0) return;
  Exporter& exporter = make(1);
  const ExportToken token = exporter.token();
  CHECK(in_child([&] {
    Collector collector;
    return setuid(65534) == 0 && fetch(token, collector) == Fetched::kRefused && collector.taken == 0;
  }));
  // As far as its own check goes, it would have taken it.
  CHECK(in_child([&] {
    Collector collector;
    return setuid(65534) == 0 && fetch(token, collector, {.user = 0}) == Fetched::kRefused;
  }));
  CHECK(exporter.chunks.asked == 0);
  CHECK(can_fetch(token, 1));
}

TEST_CASE("memory of another user is not taken") {
  Exporter& exporter = make(1);
  Collector collector;
  CHECK(fetch(exporter.token(), collector, {.user = geteuid() + 1}) == Fetched::kRefused);
  CHECK(exporter.chunks.asked == 0);
  CHECK(collector.taken == 0);
}

TEST_CASE("another user cannot even connect to an exporter") {
  if (geteuid() != 0) return;
  const ExportToken token = make(1).token();
  CHECK(in_child([&] {
    int socket = -1;
    return setuid(65534) == 0 && connect_to(token.pid, token.instance, &socket) == Connected::kNo &&
           errno == EACCES;
  }));
}

TEST_CASE("the socket of an exporter is open to its user alone whatever the umask") {
  for (const mode_t mask : {0, 022, 0777}) {
    const mode_t before = umask(mask);
    Exporter& exporter = make(1);
    const ExportToken token = exporter.token();
    umask(before);
    struct stat about;
    REQUIRE(lstat(place.path(token).c_str(), &about) == 0);
    CHECK((about.st_mode & 07777) == 0600);
    CHECK(can_fetch(token, 1));
  }
}

TEST_CASE("a name that another user took is not waited for") {
  if (geteuid() != 0) return;
  constexpr uint64_t kInstance = 0x5555'6666'7777'8888;
  const auto pid = static_cast<uint32_t>(getpid());
  const int listener = listen_as(pid, kInstance);
  REQUIRE(listener >= 0);
  const ExportToken token{kInstance, pid, kStart, 4096, 77, 1};
  REQUIRE(chown(place.path(token).c_str(), 12345, 12345) == 0);
  std::vector<int> waiting;
  int socket = -1;
  while (connect_to(pid, kInstance, &socket) == Connected::kYes) waiting.push_back(socket);
  Collector collector;
  CHECK(fetch(token, collector, {.patience_ns = uint64_t{1} << 62}) == Fetched::kRefused);
  for (const int one : waiting) close(one);
  close(listener);
}

TEST_CASE("an exporter that stops leaves no file") {
  Exporter& exporter = make(1);
  const std::string file = place.path(exporter.token());
  REQUIRE(std::filesystem::exists(file));
  exporter.server.stop();
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("an exporter removes what killed ones have left and nothing else") {
  const auto put = [&](const char* name, int queue) {
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    REQUIRE(SocketFile(name).bind(socket));
    if (queue >= 0) REQUIRE(listen(socket, queue) == 0);
    return socket;
  };
  const auto age = [&](const char* name) {
    const timespec old[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    REQUIRE(utimensat(AT_FDCWD, place.path(name).c_str(), old, AT_SYMLINK_NOFOLLOW) == 0);
  };
  close(put("cupool-1-dead", 1));
  close(put("cupool-2-young", 1));
  close(put("another-dead", 1));
  const int alive = put("cupool-3-alive", 1);
  std::ofstream(place.path("cupool-4-file")) << "precious";
  std::filesystem::create_symlink("another-dead", place.path("cupool-5-link"));
  for (const char* const name :
       {"cupool-1-dead", "another-dead", "cupool-3-alive", "cupool-4-file", "cupool-5-link"})
    age(name);
  make(1).token();
  CHECK_FALSE(std::filesystem::exists(place.path("cupool-1-dead")));
  for (const char* const name :
       {"cupool-2-young", "another-dead", "cupool-3-alive", "cupool-4-file", "cupool-5-link"})
    CHECK(std::filesystem::exists(std::filesystem::symlink_status(place.path(name))));
  close(alive);
}

TEST_CASE("an exporter whose socket was removed is found again after its next export") {
  Exporter& exporter = make(2);
  const ExportToken token = exporter.token();
  REQUIRE(std::filesystem::remove(place.path(token)));
  CHECK_FALSE(can_fetch(token, 2));
  CHECK(exporter.token() == token);
  CHECK(can_fetch(token, 2));
}

TEST_CASE("an exporter that stood in the driver when its socket was removed is found again later") {
  Exporter& exporter = make(2);
  const ExportToken token = exporter.token();
  exporter.chunks.stands = true;
  std::thread importer([&] {
    Collector collector;
    fetch(token, collector);
  });
  while (exporter.chunks.asked == 0) std::this_thread::yield();
  REQUIRE(std::filesystem::remove(place.path(token)));
  Handle handle;
  CHECK_FALSE(exporter.server.offer(kStart, 4096, 77, &handle));
  exporter.chunks.stands = false;
  importer.join();
  while (!exporter.server.offer(kStart, 4096, 77, &handle)) std::this_thread::yield();
  CHECK(can_fetch(token, 2));
}

TEST_CASE("noise costs only the connection that it comes from") {
  Exporter& exporter = make(3);
  std::mt19937_64 random(2);
  for (int i = 0; i < 200; ++i) {
    const int socket = exporter.connect();
    std::vector<unsigned char> noise(random() % 300 + 1);
    for (auto& byte : noise) byte = static_cast<unsigned char>(random());
    if (i % 4 == 0) {
      Request request = {kRequestMagic, {}, 0, 0};
      noise.resize(sizeof request);
      std::memcpy(noise.data(), &request, 8);
    }
    // Files that nobody wants come with it now and then.
    const int own[] = {socket, socket};
    send_packet(socket, noise.data(), noise.size(), own, i % 3 == 0 ? 2 : 0);
    if (i % 4 == 0) {
      close(socket);
      continue;
    }
    CHECK(is_hung_up(socket));
    close(socket);
  }
  CHECK(can_fetch(exporter.token(), 3));
}

TEST_CASE("a thousand silent connections keep nobody away") {
  Exporter& exporter = make(3);
  std::vector<int> silent;
  rlimit files;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  const size_t many = std::min<size_t>(1000, files.rlim_cur / 2);
  const ExportToken token = exporter.token();
  const size_t before = open_files();
  for (size_t i = 0; i < many; ++i) silent.push_back(exporter.connect());
  CHECK(can_fetch(token, 3));
  for (const int socket : silent) close(socket);
  CHECK(falls_to(before));
}

TEST_CASE("a connection that is silent for too long ends") {
  Exporter& exporter = make(1, Server::Settings{.patience_ns = 1'000'000});
  const int socket = exporter.connect();
  CHECK(is_hung_up(socket));
  close(socket);
}

TEST_CASE("a client that asks without reading has one answer on its way at most") {
  Exporter& exporter = make(32);
  const int socket = exporter.connect();
  const Request request = {kRequestMagic, exporter.handle(), 0, kMostAtOnce};
  while (send_packet(socket, &request, sizeof request, nullptr, 0)) {
    if (exporter.chunks.asked > 100) break;
  }
  pollfd hang_up{socket, 0, 0};
  CHECK(poll(&hang_up, 1, 10'000) == 1);
  CHECK(exporter.chunks.asked == 1);
  close(socket);
  CHECK(can_fetch(exporter.token(), 32));
}

TEST_CASE("a process that has ended is refused at once") {
  Exporter& exporter = make(1);
  const ExportToken token = exporter.token();
  exporter.~Exporter();
  Collector collector;
  CHECK(fetch(token, collector) == Fetched::kRefused);
  ExportToken never{12345, 1, kStart, 1, 1, 1};
  CHECK(fetch(never, collector) == Fetched::kRefused);
}

TEST_CASE("after the end of the driver no export token is written and none is served") {
  Exporter& exporter = make(1);
  const ExportToken token = exporter.token();
  exporter.server.stop();
  Handle handle;
  CHECK_FALSE(exporter.server.offer(kStart, 4096, 77, &handle));
  Collector collector;
  CHECK(fetch(token, collector) == Fetched::kRefused);
  CHECK(exporter.chunks.asked == 0);
}

TEST_CASE("a fork child neither serves nor holds what its parent serves with") {
  if (!kForksStartThreads) return;
  // Exporter and child are processes of their own: the name must go with the exporter, not with the child.
  int told[2], held[2];
  REQUIRE(pipe(told) == 0);
  REQUIRE(pipe(held) == 0);
  const pid_t parent = fork();
  if (parent == 0) {
    Exporter& exporter = make(2);
    const ExportToken token = exporter.token();
    const bool good = can_fetch(token, 2);
    const int connected = exporter.connect();
    if (fork() == 0) {
      exporter.server.forget_after_fork();
      const bool none = !exporter.server.is_own(token);
      char byte = none;
      close(connected);
      close(held[1]);
      if (write(told[1], &token, sizeof token) < 0 || write(told[1], &byte, 1) < 0) _exit(1);
      while (::read(held[0], &byte, 1) > 0) {
      }
      _exit(0);
    }
    pause();
    _exit(good ? 0 : 1);
  }
  close(held[0]);
  ExportToken token;
  char is_none = 0;
  REQUIRE(::read(told[0], &token, sizeof token) == sizeof token);
  REQUIRE(::read(told[0], &is_none, 1) == 1);
  CHECK(is_none == 1);
  CHECK(can_fetch(token, 2));
  kill(parent, SIGKILL);
  REQUIRE(waitpid(parent, nullptr, 0) == parent);
  int socket = -1;
  CHECK(connect_to(token.pid, token.instance, &socket) == Connected::kNo);
  for (const int one : {told[0], told[1], held[1]}) close(one);
}

TEST_CASE("a fork child that uses the library again has export tokens of its own") {
  if (!kForksStartThreads) return;
  Exporter& exporter = make(2);
  const ExportToken token = exporter.token();
  CHECK(in_child([&] {
    exporter.server.forget_after_fork();
    Handle handle;
    ExportToken own;
    return exporter.server.offer(kStart, 4096, 77, &handle) && from_handle(handle, &own) &&
           own.pid == static_cast<uint32_t>(getpid()) && own.instance != token.instance && can_fetch(own, 2);
  }));
  CHECK(can_fetch(token, 2));
}

TEST_CASE("a program that closes every descriptor keeps the numbers, and its next export is served") {
  if (!kForksStartThreads) return;
  // In a child: the test's own descriptors must not go.
  Exporter& exporter = make(2);
  CHECK(in_child([&] {
    exporter.server.forget_after_fork();
    Handle first;
    if (!exporter.server.offer(kStart, 4096, 77, &first)) return false;
    std::vector<std::pair<int, ino_t>> taken;
    for (int number = 400; number < 600; ++number) {
      struct stat about;
      if (fstat(number, &about) != 0) continue;
      const int mine = memfd_create("program", 0);
      if (dup2(mine, number) != number || fstat(number, &about) != 0) return false;
      close(mine);
      taken.emplace_back(number, about.st_ino);
    }
    Handle again;
    ExportToken token;
    if (taken.empty() || !exporter.server.offer(kStart, 4096, 77, &again) || again != first) return false;
    if (!from_handle(again, &token) || !can_fetch(token, 2)) return false;
    return std::all_of(taken.begin(), taken.end(), [](const auto& one) {
      struct stat about;
      return fstat(one.first, &about) == 0 && about.st_ino == one.second;
    });
  }));
}

TEST_CASE("a process with few descriptors left takes them one at a time") {
  Exporter& exporter = make(40);
  const ExportToken token = exporter.token();
  CHECK(in_child([&] {
    exporter.server.forget_after_fork();
    const auto next = static_cast<rlim_t>(fcntl(0, F_DUPFD, 3));
    const rlimit few{next + 3, next + 3};
    return setrlimit(RLIMIT_NOFILE, &few) == 0 && can_fetch(token, 40);
  }));
  CHECK(in_child([&] {
    exporter.server.forget_after_fork();
    // With no number free below it there is not even a socket.
    while (fcntl(0, F_DUPFD, 0) >= 0) {
    }
    Collector collector;
    return fetch(token, collector) == Fetched::kNoDescriptors;
  }));
}

TEST_CASE("an exporter that answers nonsense is refused and leaves nothing open") {
  constexpr uint64_t kInstance = 0x1111'2222'3333'4444;
  const auto pid = static_cast<uint32_t>(getpid());
  const int listener = listen_as(pid, kInstance);
  REQUIRE(listener >= 0);
  const ExportToken token{kInstance, pid, kStart, 4096, 77, 1};
  const int own = memfd_create("chunk", MFD_CLOEXEC);
  std::vector<std::pair<Reply, size_t>> nonsense;
  const Reply good = {kReplyMagic, 2, 1, kOffset, {kChunk}};
  const auto add = [&](size_t descriptors, auto&& change) {
    Reply reply = good;
    change(reply);
    nonsense.emplace_back(reply, descriptors);
  };
  add(0, [](Reply&) {});
  add(2, [](Reply&) {});
  add(32, [](Reply&) {});
  add(1, [](Reply& reply) { reply.magic = 0; });
  add(1, [](Reply& reply) { reply.count = 0; });
  add(1, [](Reply& reply) { reply.count = ~0u; });
  add(2, [](Reply& reply) { reply.count = 2, reply.total = 1; });
  add(1, [](Reply& reply) { reply.total = ~0u; });
  add(1, [](Reply& reply) { reply.offset = kChunk; });
  const size_t before = open_files();
  for (const auto& [reply, descriptors] : nonsense) {
    std::thread fake([&, &reply = reply, count = descriptors] {
      pollfd one{listener, POLLIN, 0};
      poll(&one, 1, 10'000);
      const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      one = {socket, POLLIN, 0};
      poll(&one, 1, 10'000);
      const std::vector<int> files(32, own);
      send_packet(socket, &reply, sizeof reply, files.data(), count);
      is_hung_up(socket);
      close(socket);
    });
    Collector collector;
    CHECK(fetch(token, collector) == Fetched::kRefused);
    CHECK(collector.taken == 0);
    fake.join();
    // (Fewer: an exporter of an earlier case has closed its end meanwhile.)
    CHECK(open_files() <= before);
  }
  SECTION("one that never answers is waited for a bounded time") {
    Collector collector;
    CHECK(fetch(token, collector, {.patience_ns = 1'000'000}) == Fetched::kRefused);
  }
  SECTION("one that answers now and then is waited for a bounded time in all") {
    constexpr uint32_t kTotal = 64;
    std::thread slow([&] {
      pollfd one{listener, POLLIN, 0};
      poll(&one, 1, 10'000);
      const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      Request request;
      while (recv(socket, &request, sizeof request, 0) == sizeof request) {
        std::this_thread::sleep_for(std::chrono::milliseconds(15));
        const Reply reply = {kReplyMagic, kTotal, 1, kOffset, {kChunk}};
        if (!send_packet(socket, &reply, sizeof reply, &own, 1)) break;
      }
      close(socket);
    });
    Collector collector;
    CHECK(fetch(token, collector, {.patience_ns = 20'000'000}) == Fetched::kRefused);
    slow.join();
  }
  SECTION("one that accepts nobody is waited for a bounded time") {
    std::vector<int> waiting;
    int socket = -1;
    while (connect_to(pid, kInstance, &socket) == Connected::kYes) waiting.push_back(socket);
    Collector collector;
    CHECK(fetch(token, collector, {.patience_ns = 1'000'000}) == Fetched::kRefused);
    for (const int one : waiting) close(one);
  }
  close(listener);
  close(own);
}
