// See registries.hpp.
#include "tools/registries.hpp"

#include <dirent.h>
#include <pwd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "base/say.hpp"
#include "config/options.hpp"
#include "tools/table.hpp"

namespace cupool::tools {
namespace {

constexpr int kLookMs = 10;

std::string name_of(uint32_t user) {
  const passwd* const about = getpwuid(user);
  return about != nullptr ? printable(about->pw_name) : std::to_string(user);
}

// The user whose registry has this file name.
bool parse_name(std::string_view name, uint32_t* user) {
  const std::string_view prefix = "cupool-";
  const std::string suffix = make_text("-{}", neighbours::kLayout);
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return false;
  name.remove_prefix(prefix.size());
  if (name.size() <= suffix.size()) return false;
  name.remove_suffix(suffix.size());
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), *user);
  return error == std::errc() && end == name.data() + name.size();
}

}  // namespace

Registries::Registries() : directory_(config::options().neighbours_dir) {
  add(geteuid(), true);
  DIR* const folder = geteuid() == 0 ? opendir(directory_) : nullptr;
  if (folder == nullptr) return;
  while (const dirent* const one = readdir(folder)) {
    uint32_t user = 0;
    if (parse_name(one->d_name, &user) && user != 0) add(user, false);
  }
  closedir(folder);
}

void Registries::add(uint32_t user, bool own) {
  auto registry = std::make_unique<neighbours::Registry>(directory_, user);
  if (registry->join()) {
    registries_.push_back({std::move(registry), name_of(user)});
  } else if (own) {
    refusal_ = registry->refusal();
  }
}

std::vector<Neighbour> Registries::read() {
  std::vector<Neighbour> all;
  for (const One& one : registries_) {
    one.registry->for_each([&](const neighbours::Entry& entry) { all.push_back({entry, one.user}); });
  }
  std::sort(all.begin(), all.end(), [](const Neighbour& a, const Neighbour& b) {
    const auto& x = a.entry;
    const auto& y = b.entry;
    if (x.figures.reserved != y.figures.reserved) return x.figures.reserved > y.figures.reserved;
    return x.pid != y.pid ? x.pid < y.pid : x.figures.ordinal < y.figures.ordinal;
  });
  return all;
}

uint64_t Registries::ask(const neighbours::Ask& ask, int ms) {
  const uint64_t posted = neighbours::registry_time();
  for (const One& one : registries_) one.registry->ask(ask);
  for (int waited = 0; waited < ms; waited += kLookMs) {
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

void Registries::explain_none() const {
  say(stderr,
      "cupool: there is no registry to read in {}: {}; a program appears there when it first uses device "
      "memory "
      "under cupool, unless CUPOOL_NEIGHBOURS=no\n",
      directory_, refusal_);
}

}  // namespace cupool::tools
