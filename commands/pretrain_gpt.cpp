#include "commands/pretrain_gpt.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "commands/exit_code.h"
#include "megatron/training/checkpointer.h"
#include "megatron/training/pretrain.h"

namespace megatron {
namespace {

/// A signal handler can reach nothing but static storage; this is all of it.
std::atomic<int> received_signal{0};

int number_of_signal(const std::string& name) {
  if (name == "SIGTERM") return SIGTERM;
  if (name == "SIGINT") return SIGINT;
  if (name == "SIGUSR1") return SIGUSR1;
  if (name == "SIGUSR2") return SIGUSR2;
  throw ConfigError(fmt::format("--exit-signal {}: choose SIGTERM, SIGINT, SIGUSR1 or SIGUSR2", name));
}

void handle_signal(const TrainingConfig& training) {
  if (!training.exit_signal_handler) return;
  struct sigaction action {};
  action.sa_handler = [](int number) { received_signal.store(number); };
  sigaction(number_of_signal(training.exit_signal), &action, nullptr);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

/// The bar is for a person who watches; log lines are the same with and without it.
ProgressBarOptions bar_options(const std::ostream& out) {
  ProgressBarOptions options;
  winsize size{};
  options.is_terminal = &out == &std::cout && isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  if (options.is_terminal && size.ws_col > 0) options.columns = size.ws_col;
  options.line_interval = std::chrono::hours(24);  // log lines tell as much
  return options;
}

int num_threads(const LaunchConfig& launch) {
  const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  return static_cast<int>(launch.num_threads.value_or(std::max<int64_t>(1, cores / launch.nproc_per_node.value_or(1))));
}

void run(const std::vector<std::string>& args, std::ostream& out) {
  PosixFileSystem files;
  const PretrainConfig config = parse_pretrain_gpt(
      args, 1, [&](const CheckpointConfig& checkpoint) { return Checkpointer::stored_arguments(files, checkpoint); });
  handle_signal(config.training);
  ProgressBar progress(bar_options(out), [&](std::string_view text) { out << text << std::flush; });
  pretrain(config, {.files = files,
                    .progress = progress,
                    .signal = received_signal,
                    .signal_name = config.training.exit_signal,
                    .host = host_name(),
                    .process_id = getpid(),
                    .job_id = variable("SLURM_JOB_ID"),
                    .num_threads = num_threads(config.launch)});
}

}  // namespace

int pretrain_gpt_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  return run_command("pretrain_gpt", err, [&] {
    if (asks_for_help(args))
      out << help_text();
    else
      run(args, out);
  });
}

}  // namespace megatron
