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

/// What several ranks find wrong before they have met is printed by rank 0: calls `body`, and when it throws on another
/// rank waits, so that the launcher ends this process before it repeats the message. What only that rank finds wrong,
/// such as a file that its host lacks, has its name. @throw what `body` throws, on other ranks than 0 as RankFailure
void run_before_meeting(const LaunchEnvironment& launch, const std::function<void()>& body);

/// Kernel threads of each rank: what --num-threads says, or this host's cores shared by the ranks on it, which are
/// threads of one process or processes of a launcher.
int num_threads_of(const LaunchConfig& config, const LaunchEnvironment& launch);

struct JobOptions {
  std::string_view command;
  std::chrono::milliseconds timeout;  // longest wait for another rank
  int num_threads = 1;                // OpenMP threads of this rank
  /// How far this rank is, "after iteration 17"; called by any thread. Empty: SIGTERM is left to whom it reaches.
  std::function<std::string()> place = {};
};

/// As long as `watch` lives, SIGTERM ends this rank after it has said so on `err`: until the rank itself has failed,
/// when what ends it is known. Before the ranks have met another one may have said what is wrong, and this one is
/// silent.
void watch_end(const LaunchEnvironment& launch, const JobOptions& options, const std::atomic<bool>& has_met,
               std::ostream& err, std::optional<SignalWatch>& watch);

/// Runs a command on this rank of a job, like run_command(). When a rank fails, all say so on `err`, and the processes
/// of all ranks end with its exit status, those that hang too. When a process is killed, its launcher ends the others
/// by SIGTERM: each says so before it dies of it, for no rank can name the one that is gone.
int run_job(const LaunchEnvironment& launch, const JobOptions& options, std::ostream& err,
            const std::function<void(World&)>& body);

}  // namespace megatron
