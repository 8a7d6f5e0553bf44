// The program's own functions that a stream calls. Each runs in a thread of the simulated driver, as with the
// real one: it may wait for something that the program does later. Called under the state mutex, which is
// released while the function runs.
#pragma once

#include <functional>
#include <memory>

#include "sim/model.hpp"

namespace cupool::sim {

// Runs the stream's present operation in another thread, which calls `finished` under the mutex when it is
// over. Returns once it is, or once the function sleeps: then the caller goes on meanwhile.
void start_host_function(const std::shared_ptr<Stream>& stream, const std::shared_ptr<const Work>& work,
                         std::function<void()> finished);

// Whether a thread is at this moment handing a function to the thread that runs it.
bool is_starting_host_function();

}  // namespace cupool::sim
