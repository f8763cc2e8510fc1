#include "commands/pretrain_gpt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <optional>

#include "commands/exit_code.h"
#include "commands/job.h"
#include "commands/launch_environment.h"
#include "commands/rank_thread_failures.h"
#include "commands/signal_watch.h"
#include "commands/terminal.h"
#include "megatron/training/checkpointer.h"
#include "megatron/training/pretrain.h"

namespace megatron {
namespace {

constexpr std::string_view kName = "pretrain_gpt";

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

/// @param signal number of a received signal
/// @param world this process's rank among those of a launcher; null if there are none
void train(const PretrainConfig& config, int num_threads, const std::atomic<int>& signal, World* world,
           std::ostream& out, std::ostream& err) {
  PosixFileSystem files;
  ProgressBar bar(bar_options(out, world != nullptr), [&](std::string_view text) { out << text << std::flush; });
  SilentProgress silent;
  pretrain(config, {.files = files,
                    .progress = world && world->rank() > 0 ? static_cast<Progress&>(silent) : bar,
                    .signal = signal,
                    .signal_name = config.training.exit_signal,
                    .host = host_name(),
                    .process_id = getpid(),
                    .job_id = process_environment()("SLURM_JOB_ID").value_or(""),
                    .num_threads = num_threads,
                    .world = world,
                    .rank_hooks = report_and_end(kName, err)});
}

}  // namespace

int pretrain_gpt_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  LaunchEnvironment launch;
  std::optional<PretrainConfig> config;
  const int status = run_command(kName, err, [&] {
    if (asks_for_help(args)) {
      out << help_text();
      return;
    }
    launch = launch_environment(process_environment());
    run_before_meeting(launch, [&] {
      require_connected(launch, process_environment(), kName);
      config = read_config(args, launch);
    });
  });
  if (!config) return status;
  const TrainingConfig& training = config->training;
  std::optional<SignalWatch> watch;  // begins before there are other threads
  if (training.exit_signal_handler) watch.emplace(number_of_signal(training.exit_signal));
  const std::atomic<int> none{0};
  const std::atomic<int>& signal = watch ? watch->received() : none;
  const int threads = num_threads_of(config->launch, launch);
  if (launch.size == 1) return run_command(kName, err, [&] { train(*config, threads, signal, nullptr, out, err); });
  const JobOptions options{kName, config->parallel.exchange_timeout(), threads};
  return run_job(launch, options, err, [&](World& world) { train(*config, threads, signal, &world, out, err); });
}

}  // namespace megatron
