// Whose registry it is: its name, its owner and mode, what stands in its place, and whose processes are in
// it.
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "registry_place.hpp"

using namespace cupool;
using namespace cupool::neighbours;

TEST_CASE("what is no registry is not used") {
  const Place place;
  const std::string elsewhere = std::string(place.directory()) + "/elsewhere";
  const auto refused = [&] {
    Registry registry(place.directory());
    const bool opened = registry.open();
    REQUIRE(unlink(place.file().c_str()) == 0);
    return !opened;
  };
  close(open(elsewhere.c_str(), O_CREAT | O_WRONLY, 0600));
  REQUIRE(symlink(elsewhere.c_str(), place.file().c_str()) == 0);
  CHECK(refused());
  REQUIRE(link(elsewhere.c_str(), place.file().c_str()) == 0);
  CHECK(refused());
  CHECK(std::filesystem::file_size(elsewhere) == 0);
  REQUIRE(mkfifo(place.file().c_str(), 0600) == 0);
  CHECK(refused());
  close(open(place.file().c_str(), O_CREAT | O_WRONLY, 0600));
  REQUIRE(chmod(place.file().c_str(), 0660) == 0);
  CHECK(refused());
  REQUIRE(mkdir(place.file().c_str(), 0700) == 0);
  Registry registry(place.directory());
  CHECK_FALSE(registry.open());
}

TEST_CASE("a registry of another user is not used") {
  if (geteuid() != 0) return;
  const Place place;
  Registry registry(place.directory());
  REQUIRE(registry.open());
  REQUIRE(chown(place.file().c_str(), 12345, 0) == 0);
  const Figures mine = figures(5);
  registry.publish(&mine, 1);
  CHECK_FALSE(registry.is_open());
  CHECK_FALSE(registry.open());
}

TEST_CASE("a process of another user is not shown, whoever names it") {
  if (geteuid() != 0) return;
  const Place place;
  Registry registry(place.directory());
  REQUIRE(registry.open());
  const Figures mine = figures(5);
  registry.publish(&mine, 1);
  // Now it is the registry of a user who names a process of root's, as that process would have named itself.
  const std::string theirs = std::string(place.directory()) + "/cupool-12345-" + std::to_string(kLayout);
  REQUIRE(rename(place.file().c_str(), theirs.c_str()) == 0);
  REQUIRE(chown(theirs.c_str(), 12345, 12345) == 0);
  Registry other(place.directory(), 12345);
  REQUIRE(other.join());
  CHECK(entries(other).empty());
  CHECK(other.count_others(nullptr, registry_time()) == 0);
}

TEST_CASE("a process is its user's though it must not be dumped or has changed its effective user") {
  if (geteuid() != 0) return;
  for (const bool changes : {false, true}) {
    const Place place;
    std::filesystem::permissions(place.directory(), std::filesystem::perms::all);
    const Signal ready, done;
    const pid_t child = fork();
    if (child == 0) {
      if (setresuid(12345, 12345, changes ? 54321 : 12345) != 0) _exit(1);
      Registry registry(place.directory());
      const Figures mine = figures(5);
      if (!registry.open() || !registry.publish(&mine, 1)) _exit(2);
      if (changes && seteuid(54321) != 0) _exit(3);
      prctl(PR_SET_DUMPABLE, 0);
      ready.send();
      done.wait();
      _exit(0);
    }
    ready.wait();
    Registry registry(place.directory(), 12345);
    REQUIRE(registry.join());
    CHECK(entries(registry).size() == 1);
    done.send();
    CHECK(status_of(child) == 0);
  }
}

TEST_CASE("every user has a registry of one name") {
  uint32_t user = 0;
  REQUIRE(parse_name("cupool-1000-1", &user));
  CHECK(user == 1000);
  REQUIRE(parse_name("cupool-0-1", &user));
  CHECK(user == 0);
  for (const char* const name :
       {"cupool-01000-1", "cupool-1000-01", "cupool-00-1", "cupool-+1-1", "cupool- 1-1", "cupool--1-1",
        "cupool-4294967296-1", "cupool-1000-11", "cupool-1000-2", "cupool-1000", "cupool-1000-", "cupool--1",
        "cupool-1000-1 ", "Cupool-1000-1", "cupool-1000-1-1", "cupool-0x10-1", "cupool-", ""})
    CHECK_FALSE(parse_name(name, &user));
  CHECK_FALSE(parse_name(std::string_view("cupool-1000-1\0", 14), &user));
}

TEST_CASE("root of a rootless container does not take the name of root's registry") {
  if (geteuid() != 0) return;
  const Place place;
  std::filesystem::permissions(place.directory(), std::filesystem::perms::all);
  const pid_t child = fork();
  if (child == 0) {
    if (setresgid(12345, 12345, 12345) != 0 || setresuid(12345, 12345, 12345) != 0) _exit(1);
    // The kernel gives the files in /proc of a process that has changed its user to root.
    prctl(PR_SET_DUMPABLE, 1);
    if (unshare(CLONE_NEWUSER) != 0) _exit(77);
    const int map = open("/proc/self/uid_map", O_WRONLY);
    if (write(map, "0 12345 1", 9) != 9 || geteuid() != 0) _exit(2);
    Registry registry(place.directory());
    const Figures mine = figures(5);
    _exit(registry.open() && registry.publish(&mine, 1) && entries(registry).size() == 1 ? 0 : 3);
  }
  const int status = status_of(child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return;  // no namespaces here
  CHECK(status == 0);
  CHECK_FALSE(std::filesystem::exists(place.file()));
  Registry theirs(place.directory(), 12345);
  CHECK(theirs.join());
  Registry own(place.directory());
  CHECK(own.open());
}

TEST_CASE("a registry is its owner's whatever the umask") {
  for (const mode_t mask : {0, 0277, 0777}) {
    const Place place;
    const mode_t before = umask(mask);
    Registry registry(place.directory());
    CHECK(registry.open());
    umask(before);
    struct stat about;
    REQUIRE(stat(place.file().c_str(), &about) == 0);
    CHECK((about.st_mode & 07777) == 0600);
  }
}

TEST_CASE("a registry that its owner may not open is mended") {
  const Place place;
  std::filesystem::permissions(place.directory(), std::filesystem::perms::all);
  const std::string elsewhere = std::string(place.directory()) + "/elsewhere";
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(12345) != 0) _exit(1);
    const std::string file = place.file();
    const auto opens = [&] { return Registry(place.directory()).open(); };
    close(open(file.c_str(), O_CREAT | O_WRONLY, 0));
    if (!opens()) _exit(2);
    // Not through a link, nor a file with another name.
    close(open(elsewhere.c_str(), O_CREAT | O_WRONLY, 0));
    struct stat about;
    for (const bool hard : {false, true}) {
      unlink(file.c_str());
      if ((hard ? link : symlink)(elsewhere.c_str(), file.c_str()) != 0) _exit(3);
      if (opens() || stat(elsewhere.c_str(), &about) != 0 || (about.st_mode & 0777) != 0) _exit(4);
    }
    _exit(0);
  }
  CHECK(status_of(child) == 0);
}

TEST_CASE("a registry for whose first page there was no room is begun again") {
  const Place place;
  const int file = open(place.file().c_str(), O_CREAT | O_WRONLY, 0600);
  REQUIRE(ftruncate(file, static_cast<off_t>(kFileBytes)) == 0);
  close(file);
  Registry one(place.directory());
  CHECK_FALSE(one.join());
  REQUIRE(one.open());
  const Figures mine = figures(5);
  CHECK(one.publish(&mine, 1));
  Registry two(place.directory());
  REQUIRE(two.join());
  CHECK(entries(two).size() == 1);
}
