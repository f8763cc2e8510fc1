#include "commands/launch/command_ranks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "commands/exit_code.h"
#include "commands/launch/hardware_queues.h"
#include "commands/launch/nccl_job.h"
#include "commands/launch/nccl_variables.h"
#include "commands/launch/rank_processes.h"
#include "megatron/training/planning/num_streams.h"

namespace megatron {
namespace {

DeviceNeeds needs_of_rank(const PretrainConfig& config, const LaunchEnvironment& launch, int num_threads) {
  DeviceNeeds needs = device_needs_of(config, num_threads);
  if (needs.num_ranks == 1) return needs;
  const VisibleGpus gpus = visible_gpus(launch, static_cast<int>(needs.num_ranks), process_environment());
  needs.ranks_of_host = gpus.num_taken;
  needs.local_rank = gpus.own;
  needs.only_starts_ranks = launch.size == 1;
  return needs;
}

}  // namespace

CommandRanks command_ranks(const PretrainConfig& config, const LaunchEnvironment& launch,
                           std::vector<std::string> words) {
  CommandRanks ranks{.launch = launch,
                     .words = std::move(words),
                     .timeout = config.parallel.timeout(),
                     .num_ranks = static_cast<int>(config.parallel.world_size),
                     .num_threads = num_threads_of(config.launch, launch)};
  const int64_t num_streams = most_streams_of(config);
  std::string note;
  if (ranks.num_ranks > 1) {
    if (launch.size > 1) note = open_hardware_queues(num_streams);  // ranks that this process starts set their own
    keep_nccl_from_registering_buffers();
  }
  const DeviceNeeds needs = needs_of_rank(config, launch, ranks.num_threads);
  ranks.device = choose_device(needs);
  if (ranks.have_gpus()) {
    require_enough_hardware_queues(num_streams);
    if (!note.empty()) ranks.device.text += "\n" + note;
  }
  if (!ranks.have_gpus()) {
    std::vector<std::string> call = {own_program()};
    std::ranges::copy(ranks.words, std::back_inserter(call));
    require_connected(launch, process_environment(), call);
  }
  return ranks;
}

int run_on_ranks(const CommandRanks& ranks, std::ostream& err, const std::function<void(const OwnRank&)>& body) {
  const std::string& command = ranks.words.front();
  if (ranks.are_to_be_started())
    return start_ranks(ranks.num_ranks, command, {ranks.words.begin() + 1, ranks.words.end()}, err);
  if (ranks.launch.size == 1) return run_command(command, err, [&] { body({}); });
  const JobOptions options{command, ranks.timeout, ranks.num_threads, ranks.place};
  if constexpr (kHasCuda)
    if (ranks.have_gpus())
      return run_nccl_job(ranks.launch, options, process_environment(), ranks.device.cuda_device, err,
                          [&](NcclWorld& nccl, World& world) {
                            body({&world, &nccl});
                          });
  return run_job(ranks.launch, options, err, [&](World& world) { body({.world = &world}); });
}

}  // namespace megatron
