// Starts programs as processes under mpirun.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace megatron::testing {

struct MpiOutcome {
  int status = 0;                                      // of mpirun
  std::string output;                                  // of all ranks and of mpirun, both streams
  std::chrono::duration<double> seconds_of_output{0};  // from the first byte of it to the end of the program
};

/// Runs a shell command and waits for it.
inline MpiOutcome run_shell(const std::string& command) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin;
  MpiOutcome outcome;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char block[4096];
  for (ssize_t length; (length = ::read(fileno(pipe), block, sizeof block)) > 0;) {
    if (outcome.output.empty()) begin = Clock::now();
    outcome.output.append(block, static_cast<size_t>(length));
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (!outcome.output.empty()) outcome.seconds_of_output = Clock::now() - begin;
  return outcome;
}

/// Runs `words` as `num_ranks` processes. Nothing where Open MPI's mpirun is not installed: then the test is skipped.
inline std::optional<MpiOutcome> run_under_mpi(int num_ranks, const std::vector<std::string>& words) {
  std::string command = std::string(MEGATRON_SOURCE_DIR) + "/tests/testing/mpirun.sh " + std::to_string(num_ranks);
  for (const std::string& word : words) command += " '" + word + "'";
  const MpiOutcome outcome = run_shell(command);
  return outcome.status == 77 ? std::nullopt : std::optional(outcome);
}

}  // namespace megatron::testing
