// The advice of `cupool doctor`: sentences that tell the user what to change. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "config/options.hpp"
#include "tools/driver_view.hpp"
#include "tools/report.hpp"

namespace cupool::tools {

// About the machine alone.
std::vector<std::string> advise(const DriverView& driver);
// About one process's report; the options are those that the environment of this command sets.
std::vector<std::string> advise(const Report& report, const config::Options& options);

}  // namespace cupool::tools
