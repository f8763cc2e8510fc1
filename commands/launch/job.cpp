#include "commands/launch/job.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>

#include "commands/exit_code.h"
#include "megatron/base/error.h"
#include "megatron/comm/mpi/mpi_world.h"
#include "megatron/comm/rank_failure.h"

namespace megatron {
namespace {

/// Launchers end a job within this time of the first failure.
constexpr std::chrono::seconds kTimeOfLaunchers{2};

/// With more ranks than cores Open MPI yields the core after each poll that finds nothing. A scheduler may
/// then take a whole time slice: steps of small models take ten times as long. Ranks that wait sleep anyway.
void keep_open_mpi_from_yielding() { setenv("OMPI_MCA_mpi_yield_when_idle", "0", 1); }

}  // namespace

int num_threads_of(const LaunchConfig& config, const LaunchEnvironment& launch) {
  const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  const int64_t ranks_here = std::max<int64_t>(config.nproc_per_node.value_or(1), launch.local_size);
  return static_cast<int>(config.num_threads.value_or(std::max<int64_t>(1, cores / ranks_here)));
}

void run_before_meeting(const LaunchEnvironment& launch, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    if (launch.rank == 0) throw;
    std::this_thread::sleep_for(kTimeOfLaunchers);
    throw RankFailure(launch.rank, std::current_exception(), fmt::format("[rank {}] {}", launch.rank, error.what()));
  }
}

void watch_end(const LaunchEnvironment& launch, const JobOptions& options, const std::atomic<bool>& has_met,
               std::ostream& err, std::optional<SignalWatch>& watch) {
  if (!options.place) return;
  watch.emplace({SIGTERM}, [&](int number) {
    if (has_met)
      print_error(options.command,
                  fmt::format("[rank {}] ended by SIGTERM {}: the job was cancelled, or the launcher ended it because "
                              "another rank died.",
                              launch.rank, options.place()),
                  err);
    die_of_watched(number);
  });
}

int run_job(const LaunchEnvironment& launch, const JobOptions& options, std::ostream& err,
            const std::function<void(World&)>& body) {
  keep_open_mpi_from_yielding();
  std::unique_ptr<MpiWorld> ranks;
  const int status = run_command(options.command, err, [&] {
    std::atomic<bool> has_met{false};
    std::optional<SignalWatch> end;
    watch_end(launch, options, has_met, err, end);
    run_before_meeting(launch, [&] { ranks = std::make_unique<MpiWorld>(); });
    require<CommError>(ranks->rank() == launch.rank && ranks->size() == launch.size,
                       "The launcher started rank {} of {}, but Open MPI reports rank {} of {}: they do not belong "
                       "together. Use the mpirun of the installed Open MPI, or srun --mpi=pmix.",
                       launch.rank, launch.size, ranks->rank(), ranks->size());
    has_met = true;
    run_mpi_rank(*ranks, options.timeout, options.num_threads, body, [&](const std::string& reason) {
      print_error(options.command, reason, err);
      ranks->end_all(static_cast<int>(ExitCode::kCommunication));
    });
  });
  if (status != 0 && ranks) ranks->end_all(status);
  return status;
}

}  // namespace megatron
