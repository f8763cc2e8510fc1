#include "commands/pretrain_gpt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <iostream>
#include <optional>

#include "commands/exit_code.h"
#include "commands/hardware_queues.h"
#include "commands/job.h"
#include "commands/launch_environment.h"
#include "commands/nccl_job.h"
#include "commands/rank_processes.h"
#include "commands/rank_thread_failures.h"
#include "commands/signal_watch.h"
#include "commands/terminal.h"
#include "megatron/core/cuda_devices.h"
#include "megatron/training/checkpointer.h"
#include "megatron/training/pretrain.h"

namespace megatron {
namespace {

constexpr std::string_view kName = "pretrain_gpt";

/// Several ranks with a GPU each are refused until they have been tried on GPUs; the rest of the way is there.
constexpr bool kRanksMayHaveGpus = false;

int number_of_signal(const std::string& name) {
  if (name == "SIGTERM") return SIGTERM;
  if (name == "SIGINT") return SIGINT;
  if (name == "SIGUSR1") return SIGUSR1;
  if (name == "SIGUSR2") return SIGUSR2;
  throw ConfigError(fmt::format("--exit-signal {}: choose SIGTERM, SIGINT, SIGUSR1 or SIGUSR2", name));
}

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

PretrainConfig read_config(const std::vector<std::string>& args, const LaunchEnvironment& launch) {
  PosixFileSystem files;
  return parse_pretrain_gpt(args, launch.size, [&](const CheckpointConfig& checkpoint) {
    return Checkpointer::stored_arguments(files, checkpoint);
  });
}

/// Slurm can show each task a GPU of its own alone (--gpus-per-task).
bool sees_one_gpu(const LaunchEnvironment& launch) {
  const auto visible = process_environment()("CUDA_VISIBLE_DEVICES");
  return launch.launcher == LaunchEnvironment::Launcher::kSlurm && visible && !visible->empty() &&
         visible->find(',') == std::string::npos;
}

/// The GPU of this rank where several ranks have one each; of the first, where this process is to start them.
std::optional<DeviceChoice> gpu_of_rank(const PretrainConfig& config, const LaunchEnvironment& launch) {
  if (!kRanksMayHaveGpus || config.parallel.world_size == 1) return std::nullopt;
  open_hardware_queues();
  DeviceNeeds needs = device_needs_of(config, num_threads_of(config.launch, launch));
  const bool sees_one = sees_one_gpu(launch), starts_ranks = launch.size == 1;
  needs.ranks_of_host = sees_one ? 1 : starts_ranks ? static_cast<int>(config.parallel.world_size) : launch.local_size;
  needs.local_rank = sees_one ? 0 : launch.local_rank;
  const DeviceChoice device = choose_device(needs);
  if (device.kind != DeviceKind::kCuda) return std::nullopt;
  if constexpr (kHasCuda)
    if (starts_ranks) release_cuda_device();
  return device;
}

/// What this process is among the ranks, and hears.
struct Place {
  const std::atomic<int>& signal;      // number of a received one
  World* world = nullptr;              // its rank among those of a launcher; null if there are none
  std::optional<DeviceChoice> device;  // this and the next: see PretrainEnvironment
  std::function<void(CUstream_st*)> on_stream;
};

void train(const PretrainConfig& config, int num_threads, const Place& place, std::ostream& out, std::ostream& err) {
  World* world = place.world;
  PosixFileSystem files;
  ProgressBar bar(bar_options(out, world != nullptr), [&](std::string_view text) { out << text << std::flush; });
  SilentProgress silent;
  pretrain(config, {.files = files,
                    .progress = world && world->rank() > 0 ? static_cast<Progress&>(silent) : bar,
                    .signal = place.signal,
                    .signal_name = config.training.exit_signal,
                    .host = host_name(),
                    .process_id = getpid(),
                    .job_id = process_environment()("SLURM_JOB_ID").value_or(""),
                    .num_threads = num_threads,
                    .world = world,
                    .rank_hooks = report_and_end(kName, err),
                    .device = place.device,
                    .on_stream = place.on_stream});
}

}  // namespace

int pretrain_gpt_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  LaunchEnvironment launch;
  std::optional<PretrainConfig> config;
  std::optional<SignalWatch> watch;  // begins before there are other threads
  std::optional<DeviceChoice> gpu;
  const int status = run_command(kName, err, [&] {
    if (asks_for_help(args)) {
      out << help_text();
      return;
    }
    launch = launch_environment(process_environment());
    run_before_meeting(launch, [&] {
      PretrainConfig own = read_config(args, launch);
      if (own.training.exit_signal_handler) watch.emplace(number_of_signal(own.training.exit_signal));
      gpu = gpu_of_rank(own, launch);
      std::vector<std::string> words = {own_program(), std::string(kName)};
      words.insert(words.end(), args.begin(), args.end());
      if (!gpu) require_connected(launch, process_environment(), words);
      config = std::move(own);
    });
  });
  if (!config) return status;
  if (gpu && launch.size == 1) {
    watch.reset();  // the ranks have theirs
    return start_ranks(static_cast<int>(config->parallel.world_size), kName, args, err);
  }
  const std::atomic<int> none{0};
  const std::atomic<int>& signal = watch ? watch->received() : none;
  const int threads = num_threads_of(config->launch, launch);
  const auto run = [&](const Place& place) { train(*config, threads, place, out, err); };
  if (launch.size == 1) return run_command(kName, err, [&] { run({.signal = signal}); });
  const JobOptions options{kName, config->parallel.timeout(), threads};
  if constexpr (kHasCuda)
    if (gpu)
      return run_nccl_job(launch, options, process_environment(), gpu->cuda_device, err,
                          [&](NcclWorld& ranks, World& world) {
                            run({signal, &world, gpu, [&](CUstream_st* stream) { ranks.set_compute_stream(stream); }});
                          });
  return run_job(launch, options, err, [&](World& world) { run({.signal = signal, .world = &world}); });
}

}  // namespace megatron
