// Starts programs as processes under mpirun.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "tests/testing/source_tree.h"

namespace megatron::testing {

struct MpiOutcome {
  using Clock = std::chrono::steady_clock;
  struct Arrival {
    size_t end;  // of what had been read of the output
    Clock::time_point time;
  };

  int status = 0;      // of mpirun
  std::string output;  // of all ranks and of mpirun, both streams
  std::vector<Arrival> arrivals;
  Clock::time_point end;

  /// The time at which the output up to `position` arrived; mpirun may take longer to end all ranks.
  Clock::time_point arrival_of(size_t position) const {
    const auto found =
        std::find_if(arrivals.begin(), arrivals.end(), [&](const Arrival& a) { return a.end > position; });
    return found == arrivals.end() ? Clock::time_point::max() : found->time;
  }
  /// When `text` first came. Never, if it has not.
  Clock::time_point arrival_of(const std::string& text) const { return arrival_of(output.find(text)); }
};

/// Runs a shell command and waits for it.
inline MpiOutcome run_shell(const std::string& command) {
  MpiOutcome outcome;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char block[4096];
  for (ssize_t length; (length = ::read(fileno(pipe), block, sizeof block)) > 0;) {
    outcome.output.append(block, static_cast<size_t>(length));
    outcome.arrivals.push_back({outcome.output.size(), MpiOutcome::Clock::now()});
  }
  const int status = pclose(pipe);
  outcome.end = MpiOutcome::Clock::now();
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

/// Runs `words` as `num_ranks` processes. Nothing where Open MPI's mpirun is not installed: then the test is skipped.
inline std::optional<MpiOutcome> run_under_mpi(int num_ranks, const std::vector<std::string>& words) {
  std::string command = source_path("tests/system/mpirun.sh ") + std::to_string(num_ranks);
  for (const std::string& word : words) command += " '" + word + "'";
  const MpiOutcome outcome = run_shell(command);
  return outcome.status == 77 ? std::nullopt : std::optional(outcome);
}

}  // namespace megatron::testing
