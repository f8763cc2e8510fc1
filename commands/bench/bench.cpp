#include "commands/bench/bench.h"

#include <chrono>
#include <optional>
#include <ostream>
#include <utility>

#include "commands/bench/bench_comm.h"
#include "commands/bench/bench_config.h"
#include "commands/bench/bench_kernels.h"
#include "commands/bench/bench_step.h"
#include "commands/bench/bench_tune.h"
#include "commands/exit_code.h"
#include "commands/launch/job.h"
#include "commands/launch/launch_environment.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"

namespace megatron {
namespace {

constexpr std::string_view kName = "bench";

/// In one process, whatever the layout.
void measure_kernels(const BenchConfig& config, const LaunchEnvironment& launch, std::ostream& out) {
  require<ConfigError>(launch.size == 1,
                       "a launcher started {} processes, and 'bench {}' measures the kernels of one rank. Start it "
                       "without a launcher; --nproc-per-node {} sets the number of ranks of the layout.",
                       launch.size, name_of(config.kind), launch.size);
  const PretrainConfig model = pretrain_config_of(config, launch.size);
  PosixFileSystem files;
  ProgressBar progress(bar_options(out, false), [&](std::string_view text) { out << text << std::flush; });
  bench_kernels(config, model, num_threads_of(model.launch, launch), files, progress);
}

}  // namespace

int bench_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  const auto start = std::chrono::system_clock::now();
  LaunchEnvironment launch;
  std::optional<BenchConfig> config;
  const int status = run_command(kName, err, [&] {
    launch = launch_environment(process_environment());
    run_before_meeting(launch, [&] {
      if (asks_for_help(args)) return show_text(bench_help(args), out);
      config = parse_bench(args, launch.size);
    });
  });
  if (!config) return status;
  std::vector<std::string> command_line = {std::string(kName)};
  command_line.insert(command_line.end(), args.begin(), args.end());
  if (config->kind == BenchKind::kComm) return bench_comm(*config, launch, std::move(command_line), out, err);
  if (config->kind == BenchKind::kStep) return bench_step(*config, launch, std::move(command_line), start, out, err);
  if (config->tune) return bench_tune(*config, launch, std::move(command_line), out, err);
  return run_command(kName, err, [&] { measure_kernels(*config, launch, out); });
}

}  // namespace megatron
