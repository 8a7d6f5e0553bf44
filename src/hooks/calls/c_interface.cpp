// The C interface of include/cupool/cupool.h, exported under its own names. Each function checks its
// arguments and calls the layer that does the work; nothing is decided here.
#include <sys/stat.h>

#include "base/version.hpp"
#include "config/options.hpp"
#include "cupool/cupool.h"
#include "hooks/observe/charges.hpp"
#include "hooks/process/process_lifetime.hpp"
#include "hooks/process/trace_switch.hpp"
#include "hooks/state/serving.hpp"
#include "hooks/submit/submit.hpp"
#include "report/facts.hpp"
#include "report/report.hpp"
#include "trace/recorder.hpp"

namespace cupool::hooks {

using driver::kInvalidValue;
using driver::kNotSupported;
using driver::kSuccess;
using stats::Reading;

extern "C" {
#pragma GCC visibility push(default)

const char* cupool_name(void) { return "cupool"; }

const char* cupool_version(void) { return kVersion; }

int cupool_is_enabled(void) {
  const bool wanted = config::options().backend != config::Backend::kOff;
  return wanted && !is_forked() ? 1 : 0;
}

int cupool_stat(const char* name, uint64_t* value) {
  if (name == nullptr || value == nullptr) return kInvalidValue;
  const stats::Sums sums = report::read_all(Reading::kLocked);
  return stats::find(sums, name, value) ? kSuccess : kInvalidValue;
}

int cupool_device_stat(int device, const char* name, uint64_t* value) {
  if (device < 0 || device >= stats::kMostDevices || name == nullptr || value == nullptr)
    return kInvalidValue;
  const stats::DeviceSums sums = report::read_device(device, Reading::kLocked);
  return stats::find(sums, name, value) ? kSuccess : kInvalidValue;
}

size_t cupool_stats_json(char* text, size_t size) {
  return report::print_json(text, text == nullptr ? 0 : size);
}

int cupool_device_charge(int device, const char* part, int64_t* bytes) {
  if (device < 0 || device >= stats::kMostDevices || part == nullptr || bytes == nullptr)
    return kInvalidValue;
  if (is_forked()) return kNotSupported;
  report::Charges charges = report::noted_charges(device);
  if (charges.at == 0 || std::string_view(part) == "charged") {
    charges = observe::charges_of(device);
    const bool is_known = charges.by != report::Charges::By::kNobody || charges.explained() != 0;
    if (is_known) report::note_charges(device, charges);
  }
  return charges.find(part, bytes)        ? kSuccess
         : report::Charges::is_name(part) ? kNotSupported
                                          : kInvalidValue;
}

void cupool_write_stats(void) {
  observe::look_at_charges();
  report::dump();
}

void cupool_write_trace(void) { report::dump_trace(); }

int cupool_trace_begin(const char* path) {
  constexpr int kNotReady = 600;
  if (path == nullptr || *path == '\0') return kInvalidValue;
  if (!is_alive()) return kNotSupported;
  const Switched how = begin_trace_now(path);
  return how == Switched::kDone ? kSuccess : how == Switched::kNoSuchFile ? kInvalidValue : kNotReady;
}

int cupool_trace_end(void) {
  constexpr int kNotReady = 600;
  return end_trace_now() == Switched::kDone ? kSuccess : kNotReady;
}

void cupool_phase_begin(const char* name) {
  if (trace::is_on() && name != nullptr)
    trace::record(trace::told::Phase{trace::Edge::kBegin, trace::Text(name), 0});
}

void cupool_phase_end(void) {
  if (trace::is_on()) trace::record(trace::told::Phase{trace::Edge::kEnd, {}, 0});
}

void cupool_reset_peaks(void) {
  for (int i = 0; i < stats::kMostDevices; ++i) {
    stats::device(i).reset_peaks();
    stats::spilled(i).reset_peaks();
  }
  if (memory.native() != nullptr) memory.native()->reset_peaks();
}

size_t cupool_trim(size_t bytes) { return is_serving() ? memory.idle().trim(bytes) : 0; }

size_t cupool_empty_cache(void) { return cupool_trim(0); }

void cupool_set_max_cached(size_t bytes) { memory.idle().set_max_cached(bytes); }

int cupool_record_stream(uint64_t pointer, void* stream) {
  memory::BlockInfo held;
  if (!is_serving() || !memory.find(pointer, &held)) return kInvalidValue;
  const CUstream resolved = named(static_cast<CUstream>(stream), DefaultStream::kLegacy);
  if (order::Timeline* const order = memory.order().find(held.context))
    order->after_submit(lane_of(resolved));
  return kSuccess;
}

int cupool_export_pool(int* descriptor) {
  if (descriptor == nullptr) return kInvalidValue;
  if (!is_serving() || memory.native() == nullptr) return kNotSupported;
  if (config::options().native_handle != config::NativeHandle::kFd) return kNotSupported;
  const driver::Context context = current_context();
  return context == nullptr ? driver::kInvalidContext : memory.native()->export_pool(context, descriptor);
}

int cupool_import_pool(int descriptor, void** pool) {
  // The driver does not check the descriptor: refuse one that is plainly of another kind.
  struct stat what;
  if (pool == nullptr || fstat(descriptor, &what) != 0) return kInvalidValue;
  if (S_ISREG(what.st_mode) || S_ISDIR(what.st_mode) || S_ISFIFO(what.st_mode) || S_ISSOCK(what.st_mode)) {
    return kInvalidValue;
  }
  if (!is_serving() || memory.native() == nullptr) return kNotSupported;
  return memory.native()->import_pool(descriptor, reinterpret_cast<driver::MemoryPool*>(pool));
}

int cupool_export_pointer(uint64_t pointer, void* data, size_t size) {
  if (data == nullptr || size != CUPOOL_POINTER_BYTES) return kInvalidValue;
  if (!is_serving() || memory.native() == nullptr) return kNotSupported;
  return memory.native()->export_pointer(pointer, data);
}

int cupool_import_pointer(void* pool, const void* data, size_t size, uint64_t* pointer) {
  if (pool == nullptr || data == nullptr || size != CUPOOL_POINTER_BYTES || pointer == nullptr)
    return kInvalidValue;
  if (!is_serving() || memory.native() == nullptr) return kNotSupported;
  driver::Address address = 0;
  const auto source = reinterpret_cast<driver::MemoryPool>(pool);
  const driver::Status status = memory.native()->import_pointer(source, data, &address);
  *pointer = address;
  return status;
}

#pragma GCC visibility pop
}  // extern "C"

}  // namespace cupool::hooks
