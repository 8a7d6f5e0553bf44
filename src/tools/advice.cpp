// See advice.hpp. Each rule is one condition and one sentence; the thresholds are rules of thumb, not
// options.
#include "tools/advice.hpp"

#include <algorithm>

#include "base/bytes.hpp"

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

std::vector<std::string> advise(const Report& report) {
  std::vector<std::string> out;
  const auto count = [&](const char* name) { return report.count(name); };
  const uint64_t allocations = count("allocations");
  const uint64_t pooled = allocations - std::min(allocations, count("forwarded_allocations"));
  if (report.text("mode") == "off") {
    out.push_back(
        "cupool is switched off in this program: CUPOOL_BACKEND, CUPOOL_ONLY or CUPOOL_EXCEPT say so.");
    return out;
  }
  if (allocations == 0 && count("failed_allocations") == 0) {
    out.push_back("The program allocated no device memory through cuMemAlloc: there was nothing to pool.");
  } else if (allocations > 0 && pooled == 0) {
    out.push_back(
        "Every allocation went to the driver: the context failed, or all of them were made during captures.");
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
  if (count("segments_released") * 20 > pooled && pooled > 100 && count("chunks_mapped") == 0) {
    out.push_back(
        "Segments often went back to the driver, and each such free stops the device: a larger "
        "CUPOOL_MAX_CACHED or CUPOOL_LIMIT, or a longer CUPOOL_DECAY_MS, keeps more.");
  }
  if (report.fragmentation() > 0.4 && count("peak_reserved_bytes") > (uint64_t{256} << 20)) {
    out.push_back(
        "Much of what was reserved was never in use at once: a smaller CUPOOL_SEGMENT_MIN or "
        "CUPOOL_MAX_CACHED keeps less, and CUPOOL_SEGMENTS=mapped gives holes back.");
  }
  if (count("spilled_allocations") > 0) {
    out.push_back(
        "Blocks of " + std::string(print_bytes(count("spilled_bytes")).text) +
        " in all went to host memory (CUPOOL_SPILL), because the device or CUPOOL_LIMIT had no room "
        "left: every access to them goes over the bus.");
  }
  if (!report.text("shortage").empty()) {
    out.push_back("An allocation ran out of memory, because " + report.text("shortage") + ".");
    for (const std::string& setting : report.shortage_advice()) out.push_back(setting + ".");
  } else if (count("out_of_memory") > 0) {
    out.push_back("Allocations ran out of memory: the report on stderr says why, and what holds the memory.");
  }
  if (count("unknown_entry_points") > 0) {
    out.push_back(
        "The driver gave out functions that this version of cupool does not know: a newer cupool follows "
        "them.");
  }
  return out;
}

}  // namespace cupool::tools
