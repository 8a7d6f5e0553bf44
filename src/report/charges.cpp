// See charges.hpp.
#include "report/charges.hpp"

#include <algorithm>
#include <atomic>

#include "base/after_fork.hpp"
#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "stats/device.hpp"

namespace cupool::report {

constinit Lock charges_lock{Rank::kCharges};

namespace {

constinit std::atomic<bool> is_expected{false};
constinit Charges noted[stats::kMostDevices];
CUPOOL_AFTER_FORK(charges_after_fork, []() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  charges_lock.reset_after_fork();
  for (Charges& one : noted) one = {};
});

struct Row {
  const char* name;
  const char* doc;
};
constexpr Row kRows[] = {
#define CUPOOL_CHARGE(name, doc) {#name, doc},
#include "report/charges.def"
};

void write_row(Writer& out, const char* name, int64_t bytes, const char* doc) {
  const bool is_less = bytes < 0;
  out.print("cupool: {:<24} {:16}  {} ({}{})\n", trusted(name), bytes, doc, is_less ? "-" : "",
            print_bytes(static_cast<uint64_t>(is_less ? -bytes : bytes)));
}

void write_head(Writer& out, int device, const Charges& charges) {
  out.print("cupool: --- device {}: ", device);
  switch (charges.by) {
    case Charges::By::kNvml:
      out.print("the driver charges this process {}, as NVML says\n", print_bytes(charges.charged));
      break;
    case Charges::By::kDifference:
      out.print(
          "{} more are in use than before this process; NVML does not list it, as in most containers, so "
          "what other processes took or gave back meanwhile counts, too\n",
          print_bytes(charges.charged));
      break;
    case Charges::By::kNobody:
      out.text(
          "what the driver charges this process is not known, because there is no NVML to say it; known "
          "are\n");
      break;
  }
}

void write_rest(Writer& out, const Charges& charges) {
  if (charges.by == Charges::By::kNobody) return;
  const int64_t rest = charges.unexplained();
  const double part =
      charges.charged == 0 ? 0 : static_cast<double>(rest) / static_cast<double>(charges.charged);
  out.print("cupool: {:<24} {:16}  {:.2f} % of the charge; {}\n", trusted("unexplained"), rest, part * 100,
            rest < 0 ? "memory of other processes that came meanwhile counts in the rows above"
                     : "taken where cupool did not look");
}

}  // namespace

int64_t Charges::explained() const {
  int64_t sum = 0;
  for (const int64_t part : parts) sum += part;
  return sum;
}

bool Charges::find(std::string_view name, int64_t* bytes) const {
  if (name == "charged" || name == "unexplained") {
    *bytes = name == "charged" ? static_cast<int64_t>(charged) : unexplained();
    return by != By::kNobody;
  }
  if (name == "explained") {
    *bytes = explained();
    return true;
  }
  for (size_t i = 0; i < kCharges; ++i) {
    if (name != kRows[i].name) continue;
    *bytes = parts[i];
    return true;
  }
  return false;
}

bool Charges::is_name(std::string_view name) {
  int64_t any = 0;
  Charges known;
  known.by = By::kNvml;
  return known.find(name, &any);
}

void note_charges(int device, const Charges& charges) {
  if (device < 0 || device >= stats::kMostDevices) return;
  Guard hold(charges_lock);
  noted[device] = charges;
}

Charges noted_charges(int device) {
  if (device < 0 || device >= stats::kMostDevices) return {};
  Guard hold(charges_lock);
  return noted[device];
}

void expect_charges() { is_expected.store(true, std::memory_order_relaxed); }

void write_charges(Writer& out) {
  if (!charges_lock.try_lock_for_a_moment()) return;
  bool is_due = false;
  for (int device = 0; device < stats::kMostDevices; ++device) {
    const Charges& charges = noted[device];
    is_due = is_due || (charges.at == 0 && stats::device(device).is_used());
    if (charges.at == 0) continue;
    write_head(out, device, charges);
    for (size_t i = 0; i < kCharges; ++i) {
      if (charges.parts[i] != 0) write_row(out, kRows[i].name, charges.parts[i], kRows[i].doc);
    }
    write_rest(out, charges);
    if (charges.managed != 0)
      out.print(
          "cupool: managed memory of {} has no row of its own: the driver does not tell how much of it lies "
          "on "
          "the device; that part is in the row of the moment at which it came there, mostly work\n",
          print_bytes(charges.managed));
    if (!charges.is_watched)
      out.text("cupool: what calls took is seen with CUPOOL_STATS=text from the start of the program\n");
    constexpr uint64_t kMoment = 1'000'000'000;
    if (const uint64_t age = now_ns() - charges.at; age > kMoment)
      out.print("cupool: the driver was asked {} s before\n", age / kMoment);
  }
  charges_lock.unlock();
  if (is_due && is_expected.load(std::memory_order_relaxed))
    out.text(
        "cupool: what the driver charges this process is not known: it cannot be asked in a signal handler, "
        "or "
        "when the program ends by _exit\n");
}

}  // namespace cupool::report
