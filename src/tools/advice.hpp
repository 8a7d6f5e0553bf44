// What `cupool doctor` makes of the facts: sentences for a user who wants to know what to change. Pure
// functions.
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
