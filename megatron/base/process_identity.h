// Processes as others can find them again: who holds a lock, and whether it still runs.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

/// Names one process for good. Process ids are used again, and each container may have process ids of its own.
struct ProcessIdentity {
  std::string host;
  std::string boot_id;        ///< of the running kernel; empty where /proc is not mounted
  int64_t pid_namespace = 0;  ///< inode of the namespace that process_id belongs to
  int64_t process_id = 0;
  int64_t start_ticks = 0;  ///< clock ticks after boot, as in /proc/PID/stat
  bool operator==(const ProcessIdentity&) const = default;
};

std::string host_name();
/// Id of the running kernel's boot; empty where /proc is not mounted.
std::string boot_id();
ProcessIdentity own_process();

enum class ProcessState {
  kRuns,
  kEnded,
  kUnknown,  // of another host, boot or container: process ids there cannot be looked up from here
};
ProcessState state_of(const ProcessIdentity& process);

}  // namespace megatron
