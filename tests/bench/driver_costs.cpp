// What the driver's own calls cost that the pool saves or makes: allocations and frees, growth by mapped
// chunks in the pool's sizes, events. To be run bare, on an idle device.
#include "bench.hpp"

namespace {

using namespace bench;

constexpr size_t kMiB = 1 << 20;

// Each call of a turn by itself.
template <typename First, typename Second>
void both(Report& report, const std::string& first, const std::string& second, size_t turns, First&& begin,
          Second&& end) {
  std::vector<double> begins, ends;
  for (size_t i = 0; i < turns; ++i) {
    const double before = now_ns();
    begin();
    const double between = now_ns();
    end();
    begins.push_back((between - before) / 1e3);
    ends.push_back((now_ns() - between) / 1e3);
  }
  report.add(first, "us", spread_of(begins));
  report.add(second, "us", spread_of(ends));
}

void allocations(Report& report, const Options& options) {
  if (!options.wants("cuMemAlloc")) return;
  for (const size_t mib : {2, 4, 20, 32, 64, 256}) {
    CUdeviceptr p = 0;
    const std::string size = size_name(mib * kMiB);
    both(
        report, size + ": cuMemAlloc", size + ": cuMemFree", options.smoke ? 2 : 100,
        [&] { p = allocate(mib * kMiB); }, [&] { release(p); });
  }
}

// A block's chunks, as mapped segments have them: 2 MiB, above 32 MiB a sixteenth of the block.
void chunks(Device& device, Report& report, const Options& options) {
  if (!options.wants("mapped")) return;
  CUmemAllocationProp where = {};
  where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  where.location.id = device.device();
  where.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemAccessDesc access = {};
  access.location = where.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  for (const size_t mib : {2, 4, 20, 32, 64}) {
    const size_t bytes = mib * kMiB, chunk = std::max(2 * kMiB, bytes > 32 * kMiB ? bytes / 16 : 0);
    CUdeviceptr p = 0;
    BENCH_CHECK(cuMemAddressReserve(&p, bytes, 0, 0, 0));
    std::vector<CUmemGenericAllocationHandle> handles(bytes / chunk);
    const std::string size = size_name(bytes) + " mapped in " + std::to_string(handles.size());
    both(
        report, size + ": create, map, access", size + ": unmap, release", options.smoke ? 2 : 100,
        [&] {
          for (size_t i = 0; i < handles.size(); ++i) {
            BENCH_CHECK(cuMemCreate(&handles[i], chunk, &where, 0));
            BENCH_CHECK(cuMemMap(p + i * chunk, chunk, 0, handles[i], 0));
          }
          BENCH_CHECK(cuMemSetAccess(p, bytes, &access, 1));
        },
        [&] {
          BENCH_CHECK(cuMemUnmap(p, bytes));
          for (const CUmemGenericAllocationHandle handle : handles) BENCH_CHECK(cuMemRelease(handle));
        });
    BENCH_CHECK(cuMemAddressFree(p, bytes));
  }
}

void events(Report& report, const Options& options) {
  if (!options.wants("event")) return;
  CUcontext context = nullptr;
  CUstream stream = nullptr, other = nullptr;
  CUevent event = nullptr;
  BENCH_CHECK(cuCtxGetCurrent(&context));
  BENCH_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  BENCH_CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  BENCH_CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  const size_t turns = options.smoke ? 2 : 1000;
  both(
      report, "event: cuEventRecord", "event: cuEventQuery", turns,
      [&] { BENCH_CHECK(cuEventRecord(event, stream)); }, [&] { cuEventQuery(event); });
  both(
      report, "event: cuStreamWaitEvent", "event: cuStreamSynchronize", turns,
      [&] { BENCH_CHECK(cuStreamWaitEvent(other, event, 0)); },
      [&] { BENCH_CHECK(cuStreamSynchronize(other)); });
  both(
      report, "event: cuCtxRecordEvent", "event: cuCtxWaitEvent", turns,
      [&] { BENCH_CHECK(cuCtxRecordEvent(context, event)); },
      [&] { BENCH_CHECK(cuCtxWaitEvent(context, event)); });
}

}  // namespace

int main(int count, char** words) {
  const Options options = parse(count, words);
  Device device;
  Report report("driver_costs", options);
  allocations(report, options);
  chunks(device, report, options);
  events(report, options);
  return 0;
}
