// See advice.hpp. Each rule is one condition and one sentence; the thresholds are rules of thumb, not
// options.
#include "tools/advice.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "config/options.hpp"

namespace cupool::tools {

std::vector<std::string> advise(const DriverView& driver) {
  std::vector<std::string> out;
  if (driver.library.empty()) {
    out.push_back(
        "libcuda.so.1 is not found: install the NVIDIA driver, or, in a container, start it with the GPUs.");
    return out;
  }
  if (driver.devices.empty()) {
    out.push_back("The driver sees no device: look at CUDA_VISIBLE_DEVICES and at the container's settings.");
  }
  if (!driver.context_events) {
    out.push_back(
        "This driver is older than CUDA 12.5 and has no context events: where the pool would order work on "
        "the "
        "device it must wait on the host. A newer driver makes programs with several streams faster.");
  }
  for (const DriverView::Device& device : driver.devices) {
    if (device.memory_pools) continue;
    out.push_back(
        device.name +
        " has no stream-ordered pools: CUPOOL_BACKEND=native and CUPOOL_FALLBACK=native do nothing.");
  }
  return out;
}

namespace {

bool is_set(const Size& option, const Size& usual) {
  return option.bytes != usual.bytes || option.percent != usual.percent;
}

// Which setting sent segments back to the driver often: the one that the user chose, or the time after which
// idle memory goes. What went because memory was short went for a reason that no setting takes away.
void advise_releases(const Report& report, const config::Options& options, uint64_t pooled,
                     std::vector<std::string>* out) {
  const config::Options usual = config::defaults();
  const uint64_t decays = report.count("decays");
  const uint64_t released = report.count("segments_released");
  const auto is_often = [&](uint64_t count) { return pooled > 100 && count * 20 > pooled; };
  if (report.count("chunks_mapped") != 0) return;
  if (is_often(decays)) {
    out->push_back(
        "Idle memory often went back to the driver and was taken again: a longer CUPOOL_DECAY_MS keeps it.");
  }
  if (!is_often(released - std::min(released, decays))) return;
  if (is_set(options.max_cached, usual.max_cached)) {
    out->push_back(
        "Segments often went back to the driver, and each such free stops the device: a larger "
        "CUPOOL_MAX_CACHED keeps more.");
  }
  if (is_set(options.limit, usual.limit) && report.count("out_of_memory_retries") != 0) {
    out->push_back(
        "Segments often went back to the driver to stay within CUPOOL_LIMIT, and each such free stops the "
        "device: a larger one keeps more.");
  }
}

std::string why_spilled(const Report& report) {
  const uint64_t for_limit = report.count("spilled_for_limit");
  if (for_limit == 0) return "the device had no room";
  return for_limit == report.count("spilled_allocations")
             ? "CUPOOL_LIMIT left no room"
             : "CUPOOL_LIMIT left no room, or the device had none";
}

void advise_shortage(const Report& report, const config::Options& options, std::vector<std::string>* out) {
  const uint64_t too_large = report.count("too_large");
  const uint64_t others = report.count("out_of_memory") - std::min(report.count("out_of_memory"), too_large);
  if (!report.text("shortage").empty()) {
    out->push_back("An allocation ran out of memory, because " + report.text("shortage") + ".");
    for (std::string sentence : report.shortage_advice()) {
      if (!sentence.empty() && sentence[0] >= 'a' && sentence[0] <= 'z') sentence[0] -= 'a' - 'A';
      out->push_back(sentence + ".");
    }
  } else if (others > 0) {
    out->push_back(options.oom_reports == 0 ? "Allocations ran out of memory: CUPOOL_OOM_REPORTS=1 says why."
                                            : "Allocations ran out of memory, and nobody could say why.");
  }
  if (too_large > 0) {
    out->push_back(std::to_string(too_large) + (too_large == 1 ? " allocation" : " allocations") +
                   " asked for more than the device has, which fails without cupool, too.");
  }
}

}  // namespace

std::vector<std::string> advise(const Report& report, const config::Options& options) {
  std::vector<std::string> out;
  const auto count = [&](const char* name) { return report.count(name); };
  const uint64_t allocations = count("allocations");
  const uint64_t pooled = pooled_allocations(report);
  const uint64_t managed = count("managed_allocations");
  if (report.text("mode") == "off") {
    out.push_back(
        "cupool is switched off in this program: CUPOOL_BACKEND, CUPOOL_ONLY or CUPOOL_EXCEPT say so.");
    return out;
  }
  if (allocations == 0 && count("failed_allocations") == 0 && managed == 0) {
    out.push_back("The program allocated no device memory through cuMemAlloc: there was nothing to pool.");
  } else if (allocations > 0 && pooled == 0) {
    out.push_back(
        "Every allocation went to the driver: the context failed, or all of them were made during captures.");
  }
  if (managed > 0 && pooled_managed(report) == 0) {
    out.push_back(options.managed ? "All managed memory went to the driver, which the pool could not serve."
                                  : "CUPOOL_MANAGED=no leaves managed memory to the driver.");
  }
  if (count("submissions") > 1000 && allocations * 100 < count("submissions")) {
    out.push_back(
        "The program allocates seldom for the work it does: it may keep memory itself. PyTorch does unless "
        "PYTORCH_NO_CUDA_MEMORY_CACHING=1 is set; CuPy does unless its allocator is set to None.");
  }
  if (count("async_allocations") > allocations) {
    out.push_back(
        "The program mostly uses stream-ordered allocation (cudaMallocAsync), which cupool leaves to the "
        "driver.");
  }
  if (count("mapped_allocations") > 0) {
    out.push_back(
        "The program maps memory itself (cuMemCreate), past the pool: PyTorch does with expandable_segments, "
        "JAX with its platform allocator.");
  }
  if (report.text("mode") == "fences" && !report.text("mode_reason").starts_with("CUPOOL_STREAMS")) {
    out.push_back("Streams are not followed in this program (" + report.text("mode_reason") +
                  "): freed memory becomes ready by fences alone, which is as safe and a little slower.");
  }
  if (report.text("mode") == "exact" && !report.text("mode_reason").starts_with("CUPOOL_STREAMS")) {
    out.push_back("Memory is reused only when its work is over in this program (" +
                  report.text("mode_reason") + "), which is as safe, and takes more memory or waits longer.");
  }
  if ((count("stream_waits") + count("context_waits")) * 10 > pooled && pooled > 1000) {
    out.push_back(
        "More than one allocation in ten made a stream wait for another: a larger CUPOOL_MANY_BUDGET trades "
        "memory for speed.");
  }
  if (count("refused_for_mapping") > 0) {
    out.push_back(
        "The program needs what mapped memory cannot do: SYNC_MEMOPS, or IPC on a driver that exports none. "
        "CUPOOL_SEGMENTS=driver can (docs/mapped.md).");
  }
  advise_releases(report, options, pooled, &out);
  if (report.fragmentation() > 0.4 && count("peak_reserved_bytes") > (uint64_t{256} << 20) &&
      count("chunks_mapped") == 0) {
    out.push_back(
        "Much of what was reserved was never in use at once: CUPOOL_SEGMENTS=mapped keeps less if it lay in "
        "holes between live blocks, a smaller CUPOOL_MAX_CACHED if whole segments were free.");
  }
  if (count("spilled_allocations") > 0) {
    out.push_back("Blocks of " + std::string(print_bytes(count("spilled_bytes")).text) +
                  " in all went to host memory (CUPOOL_SPILL), because " + why_spilled(report) +
                  ": every access to them goes over the bus.");
  }
  advise_shortage(report, options, &out);
  if (count("failed_frees") > 0) {
    out.push_back(
        "Frees failed: CUPOOL_CHECK=yes names each that was given a pointer to no live block, with the calls "
        "involved.");
  }
  if (count("unknown_entry_points") > 0) {
    out.push_back(
        "The driver gave out functions that this version of cupool does not know: a newer one may follow "
        "them.");
  }
  return out;
}

}  // namespace cupool::tools
