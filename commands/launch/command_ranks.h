// The ranks of a command: threads of this process, processes of a launcher, or processes with a GPU each.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "commands/launch/job.h"
#include "commands/launch/launch_environment.h"
#include "megatron/comm/gpu_ranks.h"
#include "megatron/comm/world.h"
#include "megatron/training/startup/device_choice.h"

namespace megatron {

/// Properties of the ranks that are known before they connect.
struct CommandRanks {
  LaunchEnvironment launch;
  std::vector<std::string> words;  // the command and its arguments
  std::chrono::milliseconds timeout{0};
  int num_ranks = 1, num_threads = 1;  // threads of a rank
  DeviceChoice device;  // this rank's; the first rank's, as far as it is known without a context, if this
                        // process starts the ranks
  std::function<std::string()> place;  // see JobOptions

  bool have_gpus() const { return num_ranks > 1 && device.kind == DeviceKind::kCuda; }
  /// True if this process only starts the ranks, as processes of their own, and waits for them.
  bool are_to_be_started() const { return have_gpus() && launch.size == 1; }
};

/// Ranks have a GPU each if there are GPUs and `config` does not forbid it. @param words see CommandRanks
/// @throw ConfigError if the launched ranks cannot communicate; also the errors of choose_device
CommandRanks command_ranks(const PretrainConfig& config, const LaunchEnvironment& launch,
                           std::vector<std::string> words);

/// This process among the ranks.
struct OwnRank {
  World* world = nullptr;         // null: all ranks are threads of this process
  GpuRanks* gpu_ranks = nullptr;  // see PretrainEnvironment; null where ranks have no GPU each
};

/// Runs the command on this process's rank or ranks, like run_command(). When a rank fails, all report it on
/// `err` and end. @return the exit status
int run_on_ranks(const CommandRanks& ranks, std::ostream& err, const std::function<void(const OwnRank&)>& body);

}  // namespace megatron
