// See shortage.hpp. One write, so that the reports of several ranks do not interleave; the host may be short
// of memory too, so nothing is allocated.
#include "report/shortage.hpp"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "base/bytes.hpp"
#include "base/lock.hpp"
#include "config/options.hpp"
#include "report/facts.hpp"
#include "report/ledger.hpp"
#include "report/remedies.hpp"

namespace cupool::report {
namespace {

constinit std::atomic<uint64_t> written{0};

using Advice = char[6][160];

// The cause and advice of a shortage, for the report at exit; complete, and never changed again, once
// `ready`.
struct Kept {
  std::atomic<bool> taken{false};
  std::atomic<bool> ready{false};
  char cause[256] = "";
  Advice advice = {};
};
constinit Kept kept;

bool is_managed(const Shortage& s) { return s.source == Shortage::Source::kManaged; }

// Device memory that is neither free nor the pool's.
uint64_t held_by_others(const Shortage& s) {
  // Managed memory does not count against the limit.
  const uint64_t own = s.reserved + s.rounding;
  const uint64_t ours = is_managed(s) ? own + s.limited : std::max(own, s.limited);
  const uint64_t known = s.device_free + ours;
  return s.device_total - std::min(s.device_total, known);
}

// Device memory of the process that lies idle, but for the allocator's own.
uint64_t idle_elsewhere(const Shortage& s) {
  const uint64_t all = s.all_reserved - std::min(s.all_reserved, s.all_live);
  const uint64_t own = is_managed(s) ? 0 : s.reserved - std::min(s.reserved, s.live);
  return all - std::min(all, own);
}

// What lies free between live blocks, whatever step of the driver's it is in.
uint64_t pieces(const Shortage& s) { return s.free_in_shared - s.rests; }

uint64_t missing(const Shortage& s) { return s.rounded - std::min(s.rounded, s.device_free); }

// Rounded up to whole mebibytes: easy to type, and large enough.
SizeText setting(uint64_t bytes) { return print_size({(bytes + kMiB - 1) & ~(kMiB - 1), false}); }

void write_cause(Writer& out, const Shortage& s) {
  switch (cause_of(s)) {
    case Cause::kTooLarge:
      out.print("it is more than all of the device's {}, and the driver refused it",
                print_bytes(s.device_total));
      break;
    case Cause::kLimit:
      out.print("{} is {}, of which {} are in use: {} more is {} too much", s.limit_name,
                print_bytes(s.limit), print_bytes(s.limited), print_bytes(s.rounded),
                print_bytes(s.limited + s.rounded - s.limit));
      break;
    case Cause::kCapture:
      out.print("a stream captures, so the {} that lie free cannot go back to the driver now",
                print_bytes(s.free_segment_bytes));
      break;
    case Cause::kShared:
      out.print("{} are free beside blocks that were shared outside the process, and stay where they are",
                print_bytes(s.tainted));
      break;
    case Cause::kPieces:
      if (s.free_segment_bytes != 0)
        out.print("{} are free, but {} of them", print_bytes(pieces(s) + s.free_segment_bytes),
                  print_bytes(pieces(s)));
      else
        out.print("{} are free, but", print_bytes(pieces(s)));
      out.print(" in pieces between live blocks, the largest of {}", print_bytes(s.largest_free));
      if (s.pieces_elsewhere != 0) out.print(", {} in other contexts", print_bytes(s.pieces_elsewhere));
      out.print("; the device lacks {}", print_bytes(missing(s)));
      break;
    case Cause::kRests:
      out.print(
          "the driver gives memory in steps of 2 MiB, which leaves {} unused behind blocks, and {} are "
          "free between them; the device lacks {}",
          print_bytes(s.rests), print_bytes(pieces(s)), print_bytes(missing(s)));
      break;
    case Cause::kNative:
      out.print("the driver's own pool keeps {} that it does not use for this; the device lacks {}",
                print_bytes(s.reserved - s.live), print_bytes(missing(s)));
      break;
    case Cause::kElsewhere:
      out.print("{} lie free between blocks of {} in this process; the device lacks {}",
                print_bytes(idle_elsewhere(s)), is_managed(s) ? "device memory" : "another kind",
                print_bytes(missing(s)));
      break;
    case Cause::kOthers:
      out.print("other processes, or memory of other kinds in this one, hold {}; the device lacks {}",
                print_bytes(held_by_others(s)), print_bytes(missing(s)));
      break;
    case Cause::kProgram:
      if (is_managed(s)) {
        out.print("the program holds {} of managed and {} of device memory on a device of {}, which lacks {}",
                  print_bytes(s.live), print_bytes(s.all_live), print_bytes(s.device_total),
                  print_bytes(missing(s)));
        break;
      }
      out.print("the program holds {} of the device's {}; the device lacks {}",
                print_bytes(std::max(s.live, s.all_live)), print_bytes(s.device_total),
                print_bytes(missing(s)));
      break;
    case Cause::kUnclear:
      out.print("the driver refused {} although the device has {} free", print_bytes(s.rounded),
                print_bytes(s.device_free));
      break;
  }
}

Settings settings_now(const Shortage& s) {
  const config::Options& options = config::options();
  struct sysinfo host {};
  const bool is_known = sysinfo(&host) == 0;
  return {.is_mapped = options.segments == config::Segments::kMapped,
          .can_map = s.can_map,
          .chunk = options.chunk.of(s.device_total),
          .exact = options.segment_exact.of(s.device_total),
          .spill = options.spill.of(s.device_total),
          .host_free = is_known ? uint64_t{host.freeram} * host.mem_unit : 0,
          .has_fallback = options.fallback == config::Fallback::kNative};
}

// None that is set already.
const char* settings_against_pieces() {
  const config::Options& options = config::options();
  const bool is_mapped = options.segments == config::Segments::kMapped;
  if (!options.split) return is_mapped ? "free some of them" : "CUPOOL_SEGMENTS=mapped";
  return is_mapped ? "CUPOOL_SPLIT=no" : "CUPOOL_SEGMENTS=mapped, or CUPOOL_SPLIT=no";
}

// A sentence for each setting that would have helped, with what it costs; returns how many.
int write_advice(const Shortage& s, Advice& out) {
  int count = 0;
  const auto line = [&]<typename... Args>(Format<Args...> text, const Args&... args) {
    format_into(out[count++], text, args...);
  };
  const Remedies all = remedies(s, settings_now(s));
  for (int i = 0; i < all.count; ++i) {
    const uint64_t bytes = all.list[i].bytes;
    switch (all.list[i].setting) {
      case Setting::kLimit:
        // With more room the pool cuts its memory in another way.
        if (s.free_in_shared != 0)
          line("{}={} should let it pass", s.limit_name, setting(bytes));
        else
          line("{}={} lets it pass", s.limit_name, setting(bytes));
        break;
      case Setting::kMapped:
        line("{} returns what lies free between live blocks, in steps of 2 MiB", "CUPOOL_SEGMENTS=mapped");
        break;
      case Setting::kChunk:
        line("CUPOOL_CHUNK={} returns what lies free in smaller steps", setting(bytes));
        break;
      case Setting::kExact:
        // What is free is cut all the same.
        line("CUPOOL_SEGMENT_EXACT={} asks for new memory block by block from that size on, for fewer pieces",
             setting(bytes));
        break;
      case Setting::kDedicated:
        line("{} makes every block an allocation of its own: no pieces, but more calls of the driver",
             "CUPOOL_SPLIT=no");
        break;
      case Setting::kUncached:
        line("{} keeps nothing that a capture could want back; or allocate before the capture begins",
             "CUPOOL_MAX_CACHED=0");
        break;
      case Setting::kSpill:
        line(
            "CUPOOL_SPILL={} puts what does not fit into host memory, where work on it is as slow as the bus",
            setting(bytes));
        break;
      case Setting::kFallback:
        line("{} asks the driver's stream-ordered pool as a last resort", "CUPOOL_FALLBACK=native");
        break;
    }
  }
  if (count != 0) return count;
  if (cause_of(s) == Cause::kOthers)
    line("no setting of this process helps: nvidia-smi shows which processes hold it");
  else if (cause_of(s) == Cause::kElsewhere)
    line("it may help if less lies free between blocks: {}", settings_against_pieces());
  else if (s.if_dedicated != 0)
    line("no setting helps: without cupool it would not fit either");
  else
    line("no setting is known to help");
  return count;
}

void keep(const Shortage& s) {
  if (kept.taken.exchange(true, std::memory_order_relaxed)) return;
  Writer cause(-1, kept.cause, sizeof kept.cause - 1);
  write_cause(cause, s);
  write_advice(s, kept.advice);
  kept.ready.store(true, std::memory_order_release);
  note_shortage(kept.cause, kept.advice, std::size(kept.advice));
}

// Why free segments were kept, as far as it can be known.
const char* why_kept(const Shortage& s) {
  if (s.capturing) return ", because a stream captures";
  const bool is_enough = s.free_segment_bytes >= missing(s) &&
                         (s.limit == kUnlimited || s.limited + s.rounded - s.free_segment_bytes <= s.limit);
  return is_enough ? "" : ", which would not have been enough";
}

void write_reasons(Writer& out, const Shortage& s) {
  const char* separator = "cupool:   not given back: ";
  if (s.free_in_shared != 0) {
    out.print("{}{} free in {} segment{} that also hold{} live blocks", separator,
              print_bytes(s.free_in_shared), s.shared_segments, s.shared_segments == 1 ? "" : "s",
              s.shared_segments == 1 ? "s" : "");
    separator = "; ";
  }
  const auto write_segments = [&](uint64_t bytes, uint64_t count) {
    if (count == 0) return false;
    out.print("{}{} in {} free segment{}", separator, print_bytes(bytes), count, count == 1 ? "" : "s");
    separator = "; ";
    return true;
  };
  if (write_segments(s.free_segment_bytes - s.free_segment_bytes_elsewhere,
                     s.free_segments - s.free_segments_elsewhere))
    out.text(why_kept(s));
  if (write_segments(s.free_segment_bytes_elsewhere, s.free_segments_elsewhere))
    out.text(" of other contexts");
  if (s.tainted != 0) {
    out.print("{}{} in segments whose blocks were shared outside the process", separator,
              print_bytes(s.tainted));
    separator = "; ";
  }
  if (*separator == ';') out.text("\n");
}

void write_kept(Writer& out, uint64_t reserved, uint64_t live) {
  out.print("reserved {}: live {}, idle {}", print_bytes(reserved), print_bytes(live),
            print_bytes(reserved - std::min(reserved, live)));
}

void write_table(Writer& out, const Shortage& s) {
  if (s.rows == decltype(s.rows){}) return;
  out.text("cupool:   size up to       blocks          live          free\n");
  for (size_t i = 0; i < s.rows.size(); ++i) {
    const Shortage::Row& row = s.rows[i];
    if (row.live == 0 && row.free == 0) continue;
    out.print("cupool:   {:<12} {:10} {:>13} {:>13}\n", trusted(print_bytes(uint64_t{1} << i)), row.blocks,
              trusted(print_bytes(row.live)), trusted(print_bytes(row.free)));
  }
}

}  // namespace

Cause cause_of(const Shortage& s) {
  if (is_managed(s) && s.rounded > s.device_total) return Cause::kTooLarge;
  if (!is_managed(s) && s.limit != kUnlimited && s.limited + s.rounded > s.limit) return Cause::kLimit;
  const uint64_t lacks = missing(s);
  if (s.capturing && s.free_segment_bytes >= lacks && lacks != 0) return Cause::kCapture;
  if (lacks == 0) return Cause::kUnclear;
  if (s.tainted >= lacks) return Cause::kShared;
  if (pieces(s) != 0 && pieces(s) + s.free_segment_bytes >= lacks) return Cause::kPieces;
  if (s.free_in_shared >= lacks) return Cause::kRests;
  if (s.source == Shortage::Source::kNative && s.reserved - std::min(s.reserved, s.live) >= lacks)
    return Cause::kNative;
  if (held_by_others(s) >= lacks) return Cause::kOthers;
  return idle_elsewhere(s) >= lacks ? Cause::kElsewhere : Cause::kProgram;
}

uint64_t shortages_written() {
  return std::min<uint64_t>(written.load(std::memory_order_relaxed), config::options().oom_reports);
}

bool shortage_is_due() {
  const config::Options& options = config::options();
  return written.load(std::memory_order_relaxed) < options.oom_reports &&
         written.fetch_add(1, std::memory_order_relaxed) < options.oom_reports;
}

void write_shortage(Shortage& s) {
  const stats::DeviceSums all = read_device(s.device, stats::Reading::kPatient);
  s.all_reserved = all.reserved_bytes;
  s.all_live = all.live_bytes;
  keep(s);
  // Not on the stack, which may be as small as 16 KiB.
  static constinit char buffer[8192];
  static constinit Advice advice;
  static constinit Lock one_at_a_time{Rank::kShortage};
  if (!one_at_a_time.try_lock_for_a_moment()) return;
  Writer out(STDERR_FILENO, buffer, sizeof buffer);
  out.print("cupool: {}: out of memory on device {}: {}{} asked", who(), s.device, print_bytes(s.asked),
            is_managed(s) ? " of managed memory" : "");
  if (s.rounded != s.asked) out.print(", {} with rounding", print_bytes(s.rounded));
  out.text("\ncupool:   because ");
  write_cause(out, s);
  out.print("\ncupool:   the device has {} free of {}; {}", print_bytes(s.device_free),
            print_bytes(s.device_total), is_managed(s) ? "managed memory " : "");
  write_kept(out, s.reserved, s.live);
  out.print(", largest free range {}\n", print_bytes(s.largest_free));
  if (is_managed(s) || s.all_reserved > s.reserved) {
    out.print("cupool:   {} ", is_managed(s) ? "device memory" : "all contexts together");
    write_kept(out, s.all_reserved, s.all_live);
    out.text("\n");
  }
  write_reasons(out, s);
  write_table(out, s);
  const int count = write_advice(s, advice);
  for (int i = 0; i < count; ++i) out.print("cupool:   {}\n", advice[i]);
  out.flush();
  one_at_a_time.unlock();
}

void write_last_shortage(Writer& out) {
  const bool any = kept.ready.load(std::memory_order_acquire);
  out.text("\"shortage\":");
  out.quoted(any ? kept.cause : "");
  out.text(",\"shortage_advice\":[");
  for (int i = 0; any && i < static_cast<int>(std::size(kept.advice)) && kept.advice[i][0] != '\0'; ++i) {
    if (i != 0) out.text(",");
    out.quoted(kept.advice[i]);
  }
  out.text("]");
}

}  // namespace cupool::report
