// See ledger.hpp. The file: a page for the texts, then the sheet and the slots of stats/.
#include "report/ledger.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/output.hpp"
#include "base/pages.hpp"
#include "base/preserve_errno.hpp"
#include "base/version.hpp"
#include "config/options.hpp"
#include "report/facts.hpp"
#include "report/file.hpp"

namespace cupool::report {
namespace {

constexpr char kMagic[8] = {'c', 'u', 'p', 'o', 'o', 'l', 'c', '\n'};
constexpr uint32_t kModes = 4;
constexpr size_t kMostAdvice = 6;

// Written before it is pointed to, each time in another place: a process that is killed meanwhile leaves the
// one before.
struct ModeText {
  char name[16];
  char reason[200];
};

struct Page {
  char magic[sizeof kMagic];
  char version[24];
  uint64_t layout;
  std::atomic<uint32_t> is_ready;
  std::atomic<uint32_t> has_ended;
  std::atomic<uint32_t> is_spoiled;  // another process may have counted here
  std::atomic<uint32_t> modes;       // how many were begun
  std::atomic<uint32_t> mode;        // the one that holds
  std::atomic<uint32_t> has_shortage;
  neighbours::Identity who;
  char program[64];
  ModeText texts[kModes];
  char shortage[256];
  char advice[kMostAdvice][160];
  std::atomic<uint64_t> device_use[stats::kMostDevices];
};
static_assert(sizeof(Page) <= stats::kSheetPage);
constexpr uint64_t kFileBytes = stats::kSheetPage + stats::kSharedBytes;

constinit std::atomic<Page*> page{nullptr};

// Differs where the command and the library are not of one build.
uint64_t layout() {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  stats::visit(stats::Sums{}, [&](const stats::CounterInfo& info, uint64_t) {
    for (const char* at = info.name; *at != '\0'; ++at) add(static_cast<unsigned char>(*at));
  });
  for (const size_t size : {sizeof(Page), sizeof(stats::Sheet), sizeof(stats::Slot), sizeof(stats::Slots),
                            sizeof(stats::Device), sizeof(stats::ThreadTally), sizeof(stats::Block)})
    add(size);
  return hash;
}

void copy(char* out, size_t room, const char* text) {
  const size_t size = std::min(strlen(text), room - 1);
  memcpy(out, text, size);
  out[size] = '\0';
}

// Nobody is to write there: what overwrites the file overwrites counts of the process, and one that is cut
// off kills it (SIGBUS).
constexpr mode_t kReadable = 0400;

// A new file, with all its blocks: a store into a page for which there is no room would be a SIGBUS, too.
int make_file(char* path, size_t room) {
  constexpr int kMostImages = 1000;
  rlimit limit;
  // Beyond the limit the kernel sends a signal.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < kFileBytes) {
    errno = EFBIG;
    return -1;
  }
  const size_t size = strlen(path);
  int file = -1;
  for (int image = 1; file < 0 && image < kMostImages; ++image) {
    // exec keeps the pid.
    if (image > 1) format_into({path + size, room - size}, ".{}", image);
    file = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, kReadable);
    if (file < 0 && errno != EEXIST) return -1;
  }
  if (file < 0) return -1;
  const int error = posix_fallocate(file, 0, static_cast<off_t>(kFileBytes));
  // The umask may have taken even that away.
  if (error == 0) {
    fchmod(file, kReadable);
    return file;
  }
  close(file);
  unlink(path);
  errno = error;
  return -1;
}

Page* map_page(int file) {
  void* const memory = mmap(nullptr, stats::kSheetPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Page*>(memory);
}

std::string text_of(const char* text, size_t room) { return {text, strnlen(text, room)}; }

}  // namespace

void begin_ledger() {
  const char* const pattern = config::options().counts_file;
  if (*pattern == '\0') return;
  const PreserveErrno preserve;
  const NoSignals quiet;
  char path[PATH_MAX];
  const Facts who = facts();
  expand(pattern, who, path, sizeof path);
  const int file = make_file(path, sizeof path);
  Page* const made = file < 0 ? nullptr : map_page(file);
  if (made == nullptr || !stats::share(file, stats::kSheetPage)) {
    log::line("cannot keep the counts in {}: error {}", path, errno);
    if (file >= 0) close(file);
    return;
  }
  close(file);
  memcpy(made->magic, kMagic, sizeof kMagic);
  copy(made->version, sizeof made->version, kVersion);
  made->layout = layout();
  made->who = neighbours::own_identity();
  copy(made->program, sizeof made->program, who.program);
  page.store(made, std::memory_order_release);
  note_mode();
  made->is_ready.store(1, std::memory_order_release);
}

void leave_ledger_after_fork() {
  const bool is_alone = stats::unshare_after_fork();
  Page* const parents = page.exchange(nullptr, std::memory_order_relaxed);
  if (parents == nullptr) return;
  if (!is_alone) parents->is_spoiled.store(1, std::memory_order_relaxed);
  munmap(parents, stats::kSheetPage);
}

void note_mode() {
  Page* const ours = page.load(std::memory_order_acquire);
  if (ours == nullptr || probe().mode == nullptr) return;
  const Mode mode = probe().mode();
  const uint32_t turn = ours->modes.fetch_add(1, std::memory_order_relaxed) % kModes;
  copy(ours->texts[turn].name, sizeof ours->texts[turn].name, mode.name);
  copy(ours->texts[turn].reason, sizeof ours->texts[turn].reason, mode.reason == nullptr ? "" : mode.reason);
  ours->mode.store(turn, std::memory_order_release);
}

void note_shortage(const char* cause, const char (*advice)[160], size_t most) {
  Page* const ours = page.load(std::memory_order_acquire);
  if (ours == nullptr) return;
  copy(ours->shortage, sizeof ours->shortage, cause);
  for (size_t i = 0; i < std::min(most, kMostAdvice); ++i)
    copy(ours->advice[i], sizeof ours->advice[i], advice[i]);
  ours->has_shortage.store(1, std::memory_order_release);
}

void note_end() {
  if (Page* const ours = page.load(std::memory_order_acquire))
    ours->has_ended.store(1, std::memory_order_relaxed);
}

void note_device_use(int device, uint64_t bytes) {
  Page* const ours = page.load(std::memory_order_acquire);
  if (ours == nullptr || device < 0 || device >= stats::kMostDevices) return;
  std::atomic<uint64_t>& most = ours->device_use[device];
  uint64_t seen = most.load(std::memory_order_relaxed);
  while (bytes > seen && !most.compare_exchange_weak(seen, bytes, std::memory_order_relaxed)) {
  }
}

std::optional<Ledger> Ledger::read(const char* path, std::string* error) {
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
  struct stat about;
  const bool is_file = file >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode) &&
                       static_cast<uint64_t>(about.st_size) == kFileBytes;
  // Aligned as the sheet is, whatever the page of this machine.
  char* const room = static_cast<char*>(map_pages(kFileBytes + stats::kSheetPage));
  const size_t over = room == nullptr ? 0 : reinterpret_cast<uintptr_t>(room) % stats::kSheetPage;
  char* const bytes = room + (over == 0 ? 0 : stats::kSheetPage - over);
  size_t have = 0;
  while (is_file && room != nullptr && have < kFileBytes) {
    const ssize_t got = pread(file, bytes + have, kFileBytes - have, static_cast<off_t>(have));
    if (got <= 0) break;
    have += static_cast<size_t>(got);
  }
  if (file >= 0) close(file);
  std::optional<Ledger> out;
  const Page& page = *reinterpret_cast<const Page*>(bytes);
  if (have < kFileBytes || memcmp(page.magic, kMagic, sizeof kMagic) != 0 || page.is_ready.load() == 0) {
    error->clear();
  } else if (text_of(page.version, sizeof page.version) != kVersion || page.layout != layout()) {
    *error = "it was written by another build of cupool";
  } else {
    out.emplace();
    out->who = page.who;
    out->program = text_of(page.program, sizeof page.program);
    const ModeText& mode = page.texts[page.mode.load() % kModes];
    out->mode = text_of(mode.name, sizeof mode.name);
    out->mode_reason = text_of(mode.reason, sizeof mode.reason);
    if (page.has_shortage.load() != 0) {
      out->shortage = text_of(page.shortage, sizeof page.shortage);
      for (const auto& one : page.advice) {
        if (one[0] == '\0') break;
        out->shortage_advice.push_back(text_of(one, sizeof one));
      }
    }
    out->has_ended = page.has_ended.load() != 0;
    for (const auto& use : page.device_use) out->device_use += use.load();
    auto& sheet = *reinterpret_cast<stats::Sheet*>(bytes + stats::kSheetPage);
    auto& slots = *reinterpret_cast<stats::Slots*>(bytes + stats::kSheetPage + sizeof(stats::Sheet));
    std::vector<stats::DeviceSums> devices(stats::kMostDevices);
    size_t count = 0;
    const stats::Sums sums = stats::sums_of(sheet, slots, devices.data(), &count);
    out->sums = add_devices(sums, devices.data(), count);
    out->is_whole = stats::is_whole(sheet) && page.is_spoiled.load() == 0;
  }
  if (room != nullptr) unmap_pages(room, kFileBytes + stats::kSheetPage);
  return out;
}

}  // namespace cupool::report
