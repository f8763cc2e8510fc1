// How the operating system ranks a thread among others.
#pragma once

#include <optional>
#include <string>

namespace megatron {

/// Sets the niceness (-20 to 19, see nice(2)) and, unless it is nothing, the I/O class (0 to 3, see ioprio_set(2)) of
/// the calling thread, which threads that it starts inherit.
/// @return what the system refused and why, for a warning; empty if nothing.
std::string set_thread_priority(int niceness, std::optional<int> io_class);

}  // namespace megatron
