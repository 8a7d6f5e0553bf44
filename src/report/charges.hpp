// The table of all device memory that the driver charges this process, as it was when it was last made, and
// its form in a report. The layers above make it, for they can ask the driver. Its lock is tried, so that a
// report in a signal handler may be written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/lock.hpp"
#include "report/writer.hpp"

namespace cupool::report {

enum class Charge : uint8_t {
#define CUPOOL_CHARGE(name, doc) name,
#include "report/charges.def"
};
inline constexpr size_t kCharges = 0
#define CUPOOL_CHARGE(name, doc) +1
#include "report/charges.def"
    ;

struct Charges {
  enum class By : uint8_t {
    kNobody,      // what the process is charged is not known
    kNvml,        // NVML knows the process
    kDifference,  // what is in use on the device, less what was before its first context
  };
  By by = By::kNobody;
  bool is_watched = false;  // calls were looked at from the beginning
  uint64_t at = 0;          // when, of now_ns(); 0: never
  uint64_t charged = 0;
  uint64_t managed = 0;  // managed memory, wherever it lies; in no part
  std::array<int64_t, kCharges> parts{};

  int64_t& operator[](Charge which) { return parts[static_cast<size_t>(which)]; }
  int64_t operator[](Charge which) const { return parts[static_cast<size_t>(which)]; }
  int64_t explained() const;
  // Negative: the parts are more than is charged.
  int64_t unexplained() const { return static_cast<int64_t>(charged) - explained(); }
  // A part by its name, "charged", "explained" or "unexplained". False: not known, or no such name.
  bool find(std::string_view name, int64_t* bytes) const;
  static bool is_name(std::string_view name);
};

// Guards the table, and the account from which the layer above makes it.
extern constinit Lock charges_lock;

// `device`: by the driver's number.
void note_charges(int device, const Charges& charges);
Charges noted_charges(int device);
// From now on a report without the table says why.
void expect_charges();
void write_charges(Writer& out);

}  // namespace cupool::report
