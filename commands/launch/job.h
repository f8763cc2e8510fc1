// Commands on several ranks that a launcher started as processes.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "commands/launch/launch_environment.h"
#include "commands/signal_watch.h"
#include "megatron/comm/world.h"
#include "megatron/training/config/training_config.h"

namespace megatron {

/// Rank 0 prints the errors that all ranks find before they connect: calls `body`, and if it throws on another
/// rank, waits, so that the launcher ends this process before it repeats the message. An error of that rank only,
/// such as a file that its host lacks, names it. @throw the exception of `body`, on other ranks than 0 as RankFailure
void run_before_meeting(const LaunchEnvironment& launch, const std::function<void()>& body);

/// Kernel threads of each rank: --num-threads, or this host's cores divided by the ranks on it, which are
/// threads of one process or processes of a launcher.
int num_threads_of(const LaunchConfig& config, const LaunchEnvironment& launch);

struct JobOptions {
  std::string_view command;
  std::chrono::milliseconds timeout;  // longest wait for another rank
  int num_threads = 1;                // OpenMP threads of this rank
  /// Progress of this rank, "after iteration 17"; called by any thread. Empty: SIGTERM is not handled.
  std::function<std::string()> place = {};
};

/// As long as `watch` lives, SIGTERM ends this rank after a message on `err`. There is no message if the rank itself
/// has failed, as the cause is then known, or if ranks have not connected yet, as another one may have reported the
/// cause.
void watch_end(const LaunchEnvironment& launch, const JobOptions& options, const std::atomic<bool>& has_met,
               std::ostream& err, std::optional<SignalWatch>& watch);

/// Runs a command on this rank of a job, like run_command(). When a rank fails, all report it on `err`, and the
/// processes of all ranks end with its exit status, hung ones too. When a process is killed, its launcher ends the
/// others by SIGTERM: each logs that before it ends, as no rank can name the lost one.
int run_job(const LaunchEnvironment& launch, const JobOptions& options, std::ostream& err,
            const std::function<void(World&)>& body);

}  // namespace megatron
