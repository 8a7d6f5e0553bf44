// See registries.hpp.
#include "tools/registries.hpp"

#include <dirent.h>
#include <pwd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string_view>
#include <tuple>

#include "base/say.hpp"
#include "config/options.hpp"
#include "neighbours/name.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

constexpr int kLookMs = 10;
constexpr size_t kMostOthers = 256;

std::string name_of(uint32_t user) {
  const passwd* const about = getpwuid(user);
  return about != nullptr ? printable(about->pw_name) : std::to_string(user);
}

// The users of whom there is a registry, by its name.
std::vector<uint32_t> find_users(const char* directory) {
  std::vector<uint32_t> users;
  DIR* const folder = opendir(directory);
  if (folder == nullptr) return users;
  while (const dirent* const one = readdir(folder)) {
    uint32_t user = 0;
    if (neighbours::parse_name(one->d_name, &user)) users.push_back(user);
  }
  closedir(folder);
  std::sort(users.begin(), users.end());
  return users;
}

// The users who have processes.
std::set<uint32_t> find_living() {
  std::set<uint32_t> users;
  DIR* const processes = opendir("/proc");
  if (processes == nullptr) return users;
  while (const dirent* const one = readdir(processes)) {
    struct stat about;
    if (one->d_name[0] >= '1' && one->d_name[0] <= '9' &&
        fstatat(dirfd(processes), one->d_name, &about, 0) == 0)
      users.insert(about.st_uid);
  }
  closedir(processes);
  return users;
}

}  // namespace

Registries::Registries() : directory_(config::options().neighbours_dir) {
  add_own();
  if (geteuid() != 0) return;
  std::vector<uint32_t> users = find_users(directory_);
  std::erase(users, geteuid());
  if (users.size() > kMostOthers) {
    // With a range of user numbers, as rootless containers get, one user can make thousands of registries.
    const std::set<uint32_t> living = find_living();
    std::stable_partition(users.begin(), users.end(), [&](uint32_t user) { return living.contains(user); });
    left_out_ = users.size() - kMostOthers;
    users.resize(kMostOthers);
  }
  for (const uint32_t user : users) add(user);
}

void Registries::add_own() {
  auto registry = std::make_unique<neighbours::Registry>(directory_);
  if (registry->join()) {
    registries_.push_back({std::move(registry), name_of(geteuid())});
  } else {
    refusal_ = registry->refusal();
  }
}

void Registries::add(uint32_t user) {
  auto registry = std::make_unique<neighbours::Registry>(directory_, user);
  if (registry->join()) registries_.push_back({std::move(registry), name_of(user)});
}

std::vector<Neighbour> Registries::read() {
  std::vector<Neighbour> all;
  for (const One& one : registries_) {
    one.registry->for_each([&](const neighbours::Entry& entry) { all.push_back({entry, one.user}); });
  }
  // The newest of several entries that say the same of themselves: monitors refuse a sample that comes twice.
  const auto row_of = [](const Neighbour& one) {
    const auto& [entry, user] = one;
    return std::tuple(
        user, entry.pid_namespace, entry.pid, std::string_view(entry.program), entry.figures.ordinal,
        std::string_view(reinterpret_cast<const char*>(&entry.figures.device), sizeof entry.figures.device));
  };
  std::sort(all.begin(), all.end(), [&](const Neighbour& a, const Neighbour& b) {
    const auto x = row_of(a), y = row_of(b);
    return x != y ? x < y : a.entry.stamp > b.entry.stamp;
  });
  const auto is_same = [&](const Neighbour& a, const Neighbour& b) { return row_of(a) == row_of(b); };
  all.erase(std::unique(all.begin(), all.end(), is_same), all.end());
  std::stable_sort(all.begin(), all.end(), [](const Neighbour& a, const Neighbour& b) {
    const auto& x = a.entry;
    const auto& y = b.entry;
    if (x.figures.reserved != y.figures.reserved) return x.figures.reserved > y.figures.reserved;
    return x.pid != y.pid ? x.pid < y.pid : x.figures.ordinal < y.figures.ordinal;
  });
  return all;
}

uint64_t Registries::ask(const neighbours::Ask& ask, int ms) {
  const uint64_t posted = neighbours::registry_time();
  const uint64_t end = posted + static_cast<uint64_t>(ms) * 1'000'000;
  for (const One& one : registries_) one.registry->ask(ask);
  // By the clock: reading takes long where users fill their registries.
  while (neighbours::registry_time() < end) {
    const auto all = read();
    const bool answered = std::all_of(all.begin(), all.end(), [&](const Neighbour& one) {
      const bool named = ask.pid == -1 || (one.entry.same_namespace && one.entry.pid == ask.pid);
      return !named || one.entry.stamp > posted;
    });
    if (answered) break;
    const timespec moment{0, kLookMs * 1'000'000};
    nanosleep(&moment, nullptr);
  }
  return posted;
}

void Registries::warn_left_out() const {
  if (left_out_ == 0) return;
  say(stderr,
      "cupool: {} registries in {} are left out, of users without processes first; remove those that nobody "
      "needs\n",
      left_out_, directory_);
}

void Registries::explain_none() const {
  say(stderr,
      "cupool: no registry can be read in {}: {}; a program makes one when it first uses device memory under "
      "cupool, unless CUPOOL_NEIGHBOURS=no\n",
      directory_, refusal_);
}

}  // namespace cupool::tools
