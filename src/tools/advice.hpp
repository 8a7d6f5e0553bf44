// The advice of `cupool doctor`: sentences that tell the user what to change. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "tools/driver_view.hpp"
#include "tools/report.hpp"

namespace cupool::tools {

// About the machine alone.
std::vector<std::string> advise(const DriverView& driver);
// About one process's report.
std::vector<std::string> advise(const Report& report);

}  // namespace cupool::tools
