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
  int port = 0;        // where this process's StoreServer listens
  std::string run_id;  // tells runs apart that share a store
};

/// What `rank` finds in its environment beside what this process has: torchrun's variables, each "NAME=VALUE".
/// Source: torch/distributed/elastic/agent/server/local_elastic_agent.py.
std::vector<std::string> torchrun_variables(const ProcessesToStart& processes, int rank);

/// Starts the processes, which share this one's input and output, passes SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 on to
/// them, and waits. When one fails the others have kTimeToEnd to say why they cannot go on; then they are killed, as
/// they all are when this process ends. A process that was killed is named on `err`.
/// @return 0, or the status of the first that failed: not 7 (kCommunication), of ranks that miss one, where another
/// failed by itself; 128 + the number of a signal
/// @throw IoError if a process cannot be started, naming its file and why; those that were are killed
int run_processes(const ProcessesToStart& processes, std::string_view command, std::ostream& err);

}  // namespace megatron
