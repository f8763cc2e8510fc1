// Names of threads, as top -H, gdb and perf show them.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// Names the calling thread: "rank 3". Linux keeps 15 bytes; what is longer is cut. Threads that it starts, such as
/// those of OpenMP, begin with its name.
void set_thread_name(std::string_view name);
/// Names the calling thread after its work, with the number of the rank that started it: "loader" becomes "loader 3" in
/// a thread that "rank 3" has started.
void set_worker_thread_name(std::string_view work);
/// Returns the name of the calling thread.
std::string thread_name();

}  // namespace megatron
