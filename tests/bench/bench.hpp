// What the benchmarks share: a device with the kernels of the victims, a clock, medians with their spread,
// and one way to print results (a table for people, JSON for compare). Times are taken in batches, because
// one pair is shorter than a reading of the clock. Nothing here allocates device memory: that is what is
// measured.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define BENCH_CHECK(call)                                                                  \
  do {                                                                                     \
    const CUresult bench_result_ = (call);                                                 \
    if (bench_result_ != CUDA_SUCCESS) bench::die(#call, static_cast<int>(bench_result_)); \
  } while (0)

namespace bench {

[[noreturn]] inline void die(const char* what, int code) {
  std::fprintf(stderr, "bench: %s: driver error %d\n", what, code);
  std::exit(2);
}

struct Options {
  bool smoke = false;  // every path once, no useful figures
  bool json = false;
  std::string only;  // a part of the names of the measurements to take; empty: all

  bool wants(const char* part) const { return only.empty() || std::strstr(part, only.c_str()) != nullptr; }
};

inline Options parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--smoke") {
      options.smoke = true;
    } else if (word == "--json") {
      options.json = true;
    } else if (word == "--only" && i + 1 < count) {
      options.only = words[++i];
    } else {
      std::fprintf(stderr, "usage: %s [--smoke] [--json] [--only part]\n", words[0]);
      std::exit(2);
    }
  }
  return options;
}

inline double now_ns() {
  using Clock = std::chrono::steady_clock;
  return static_cast<double>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count());
}

// The middle and the tenth and ninetieth percent of what was measured.
struct Spread {
  double low = 0, median = 0, high = 0;
};

inline Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) { return values[static_cast<size_t>(part * double(values.size() - 1))]; };
  return {at(0.1), at(0.5), at(0.9)};
}

struct Row {
  std::string name, unit;
  Spread value;
};

class Report {
 public:
  Report(const char* program, const Options& options) : program_(program), options_(options) {
    if (!options_.json) std::printf("%-44s %12s %12s %12s  unit\n", program, "median", "low", "high");
  }

  void add(const std::string& name, const char* unit, const Spread& value) {
    rows_.push_back({name, unit, value});
    if (options_.json) return;
    std::printf("%-44s %12.3f %12.3f %12.3f  %s\n", name.c_str(), value.median, value.low, value.high, unit);
    std::fflush(stdout);
  }

  void add(const std::string& name, const char* unit, double value) {
    add(name, unit, {value, value, value});
  }

  ~Report() {
    if (!options_.json) return;
    std::printf("{\"program\": \"%s\", \"rows\": [", program_);
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      std::printf("%s{\"name\": \"%s\", \"unit\": \"%s\", \"median\": %.4f, \"low\": %.4f, \"high\": %.4f}",
                  i == 0 ? "" : ", ", row.name.c_str(), row.unit.c_str(), row.value.median, row.value.low,
                  row.value.high);
    }
    std::printf("]}\n");
  }

  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

 private:
  const char* program_;
  const Options options_;
  std::vector<Row> rows_;
};

inline std::string size_name(size_t bytes) {
  char text[32];
  if (bytes >= size_t{1} << 20) {
    std::snprintf(text, sizeof text, "%zu MiB", bytes >> 20);
  } else if (bytes >= 1024) {
    std::snprintf(text, sizeof text, "%zu KiB", bytes >> 10);
  } else {
    std::snprintf(text, sizeof text, "%zu B", bytes);
  }
  return text;
}

class Device {
 public:
  Device() {
    static const char kernels[] =
#include "kernels.ptx.inc"
        ;
    BENCH_CHECK(cuInit(0));
    BENCH_CHECK(cuDeviceGet(&device_, 0));
    BENCH_CHECK(cuDevicePrimaryCtxRetain(&context_, device_));
    enter_thread();
    BENCH_CHECK(cuModuleLoadData(&module_, kernels));
    BENCH_CHECK(cuModuleGetFunction(&spin_, module_, "spin"));
  }

  ~Device() { cuDevicePrimaryCtxRelease(device_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void enter_thread() { BENCH_CHECK(cuCtxSetCurrent(context_)); }
  CUdevice device() const { return device_; }

  // One thread of the GPU that is busy for so many nanoseconds.
  void spin(unsigned long long ns, CUstream stream, decltype(&cuLaunchKernel) launch = &cuLaunchKernel) {
    void* parameters[] = {&ns};
    BENCH_CHECK(launch(spin_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction spin_ = nullptr;
};

inline CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr p = 0;
  BENCH_CHECK(cuMemAlloc(&p, bytes));
  return p;
}

inline void release(CUdeviceptr p) { BENCH_CHECK(cuMemFree(p)); }

// Nanoseconds a turn, measured in batches long enough for the clock, within about `budget_ns` in all.
// `run(count)` makes that many turns.
template <typename Run>
class Batches {
 public:
  Batches(Run run, bool smoke, double budget_ns = 150e6) : run_(std::move(run)) {
    if (smoke) {
      turns_ = 8;
      batches_ = 2;
      return;
    }
    run_(32);
    double took = 0;
    for (turns_ = 8; turns_ < (size_t{1} << 22); turns_ *= 2) {
      const double begin = now_ns();
      run_(turns_);
      took = now_ns() - begin;
      if (took > budget_ns / 200) break;
    }
    batches_ = static_cast<size_t>(std::clamp(budget_ns / std::max(took, 1.0), 5.0, 101.0));
  }

  size_t batches() const { return batches_; }

  void once() {
    const double begin = now_ns();
    run_(turns_);
    values_.push_back((now_ns() - begin) / double(turns_));
  }

  Spread all() {
    for (size_t i = 0; i < batches_; ++i) once();
    return spread();
  }

  Spread spread() const { return spread_of(values_); }

 private:
  Run run_;
  size_t turns_ = 8, batches_ = 2;
  std::vector<double> values_;
};

}  // namespace bench
