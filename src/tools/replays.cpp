// See replays.hpp.
#include "tools/replays.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/bytes.hpp"
#include "base/say.hpp"
#include "tools/commands.hpp"
#include "tools/launch.hpp"
#include "tools/load_program.hpp"
#include "tools/table.hpp"

namespace cupool::tools {

namespace {

constexpr size_t kMostAtOnce = 8;

struct Child {
  size_t replay = 0;
  pid_t process = 0;
  int answer = -1;
};

size_t processors() {
  cpu_set_t set;
  const int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::clamp<size_t>(static_cast<size_t>(count), 1, kMostAtOnce);
}

[[noreturn]] void play_in_child(const Replay& replay, int answer) {
  for (const std::string& entry : replay.setting) {
    const size_t equals = entry.find('=');
    setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
  setenv("CUPOOL_OOM_REPORTS", "0", 1);
  setenv("CUPOOL_LOG", "quiet", 1);
  const replay::Figures figures = replay::play(*replay.program, replay.conditions);
  const bool is_told = write(answer, &figures, sizeof figures) == sizeof figures;
  _exit(is_told ? 0 : 1);
}

bool start(const std::vector<Replay>& replays, size_t which, Child* child) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  const pid_t process = fork();
  if (process == 0) play_in_child(replays[which], ends[1]);
  close(ends[1]);
  if (process < 0) {
    close(ends[0]);
    return false;
  }
  *child = {which, process, ends[0]};
  return true;
}

void finish(Replay& replay, const Child& child) {
  replay::Figures figures;
  ssize_t got = 0;
  do got = read(child.answer, &figures, sizeof figures);
  while (got < 0 && errno == EINTR);
  close(child.answer);
  int status = 0;
  while (waitpid(child.process, &status, 0) < 0 && errno == EINTR) {
  }
  if (got == sizeof figures) {
    replay.figures = figures;
  } else if (WIFSIGNALED(status)) {
    replay.error = make_text("the replay was ended by signal {}", WTERMSIG(status));
  } else {
    replay.error = "the replay ended early";
  }
}

}  // namespace

void play_all(std::vector<Replay>& replays, const std::function<void(size_t done)>& ended) {
  const size_t most = processors();
  std::vector<Child> children;
  size_t next = 0;
  size_t done = 0;
  fflush(stdout);
  while (next < replays.size() || !children.empty()) {
    while (next < replays.size() && children.size() < most) {
      Child child;
      if (start(replays, next, &child)) {
        children.push_back(child);
      } else {
        replays[next].error = strerror(errno);
        ended(++done);
      }
      ++next;
    }
    std::vector<pollfd> answers;
    answers.reserve(children.size());
    for (const Child& child : children) answers.push_back({child.answer, POLLIN, 0});
    if (answers.empty()) continue;
    if (poll(answers.data(), answers.size(), -1) < 0) continue;
    for (size_t i = answers.size(); i-- > 0;) {
      if (answers[i].revents == 0) continue;
      finish(replays[children[i].replay], children[i]);
      children.erase(children.begin() + static_cast<ptrdiff_t>(i));
      ended(++done);
    }
  }
}

std::optional<Setting> parse_setting(const std::string& text) {
  Setting setting;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string entry = option_entry(text.substr(at, end - at).c_str());
    if (entry.empty()) return std::nullopt;
    if (entry.starts_with("CUPOOL_BACKEND=") || entry.starts_with("CUPOOL_FALLBACK=native")) {
      say(stderr, "cupool: {} cannot be replayed: the driver's own pool is the driver's\n", entry);
      return std::nullopt;
    }
    setting.push_back(entry);
    at = end + 1;
  }
  return setting;
}

std::string describe(const Setting& setting) {
  std::string out = "cupool";
  for (const std::string& entry : setting) {
    std::string name = entry.substr(std::min<size_t>(strlen("CUPOOL_"), entry.size()));
    const size_t equals = std::min(name.find('='), name.size());
    for (size_t i = 0; i < equals; ++i) {
      if (name[i] >= 'A' && name[i] <= 'Z') name[i] = static_cast<char>(name[i] - 'A' + 'a');
    }
    out += (out == "cupool" ? " " : ",") + name;
  }
  return out;
}

// ---- What is played.

namespace {

std::string name_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

bool take_size(const Arguments& arguments, const char* flag, uint64_t* out) {
  for (const auto& [name, value] : arguments.flags) {
    if (name != flag) continue;
    const auto size = parse_size(value);
    if (!size || size->percent || size->of(kUnlimited) == 0 || size->of(kUnlimited) > uint64_t{1} << 46) {
      say(stderr, "cupool: {} takes a size such as 24G, not \"{}\"\n", flag, value);
      return false;
    }
    *out = size->of(kUnlimited);
  }
  return true;
}

bool take_lag(const Arguments& arguments, std::optional<uint64_t>* out) {
  for (const auto& [name, value] : arguments.flags) {
    if (name != "--lag") continue;
    char* end = nullptr;
    errno = 0;
    const uint64_t launches = strtoull(value.c_str(), &end, 10);
    if (value.empty() || value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0) {
      say(stderr, "cupool: --lag takes a number of launches, not \"{}\"\n", value);
      return false;
    }
    *out = launches;
  }
  return true;
}

}  // namespace

std::vector<NamedProgram> load_programs(const Arguments& arguments, int* code, bool with_names) {
  uint64_t capacity = 0;
  std::optional<uint64_t> lag;
  *code = kMisuse;
  if (!take_size(arguments, "--memory", &capacity) || !take_lag(arguments, &lag)) return {};
  std::vector<NamedProgram> out;
  for (const std::string& path : arguments.operands) {
    NamedProgram& one = out.emplace_back();
    one.name = name_of(path);
    std::string error;
    if (!load_program(path, with_names, &one.program, &error)) {
      say(stderr, "cupool: cannot replay {}: {}\n", printable(path), printable(error));
      *code = 1;
      return {};
    }
    replay::Conditions& conditions = one.conditions;
    if (capacity != 0)
      conditions.capacity = capacity;
    else if (one.program.device_bytes != 0)
      conditions.capacity = one.program.device_bytes;
    if (lag) {
      conditions.lag.launches = *lag;
      one.program.knows_done = false;
    } else if (!one.program.has_waits) {
      conditions.lag.launches = 0;
    }
    conditions.one_thread = arguments.has("--one-thread");
  }
  *code = 0;
  return out;
}

}  // namespace cupool::tools
