// Ranks as processes of this host that one command starts: the program itself again, once for each rank.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

struct ProcessesToStart {
  std::vector<std::string> command;  // the program's path, then its arguments
  int count = 1;
  int port = 0;        // of this process's StoreServer
  std::string run_id;  // distinguishes runs that share a store
};

/// Environment variables that `rank` gets in addition to this process's: torchrun's, each "NAME=VALUE".
/// Source: torch/distributed/elastic/agent/server/local_elastic_agent.py.
std::vector<std::string> torchrun_variables(const ProcessesToStart& processes, int rank);

/// Starts the processes, which share this one's input and output, passes SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 on to
/// them, and waits. When one fails, the others have kTimeToEnd to report it; then they are killed, as
/// they all are when this process ends. A killed process is reported on `err`.
/// @return 0, or the status of the first that failed, but not 7 (kCommunication, a lost rank) if another
/// failed for its own reason; 128 + the number of a signal
/// @throw IoError if a process cannot be started, with its file and the reason; those that were started are killed
int run_processes(const ProcessesToStart& processes, std::string_view command, std::ostream& err);

}  // namespace megatron
