#include "commands/bench/bench_comm.h"

#include <fmt/core.h>

#include <optional>
#include <ostream>
#include <utility>

#include "commands/bench/bench_report.h"
#include "commands/exit_code.h"
#include "commands/launch/command_ranks.h"
#include "commands/launch/rank_thread_failures.h"
#include "commands/terminal.h"
#include "megatron/bench/comm_bench.h"
#include "megatron/comm/threads/rank_threads.h"

namespace megatron {
namespace {

constexpr std::string_view kCommBench = "bench";

void report_timings(const std::vector<CommTiming>& timings, const PowerUse& use, BenchReport& report) {
  report.line(fmt::format("{:<16}{:>12}{:>12}{:>12}{:>9}{:>16}{:>16}", "operation", "bytes", "best", "median", "spread",
                          "algorithm", "bus"));
  for (const CommTiming& timing : timings) {
    report.line(fmt::format("{:<16}{:>12}{:>12}{:>12}{:>7.1f} %{:>16}{:>16}", name_of(timing.pattern), timing.bytes,
                            time_text(timing.timing.best), time_text(timing.timing.median), 100 * timing.timing.spread,
                            rate_text(timing.bandwidth(), "B/s"), rate_text(timing.bus_bandwidth(), "B/s")));
    std::vector<JsonField> fields = {{"bytes", timing.bytes},
                                     {"seconds", timing.timing.best},
                                     {"median_seconds", timing.timing.median},
                                     {"spread", timing.timing.spread},
                                     {"timed_calls", timing.timing.num_calls},
                                     {"algorithm_bytes_per_second", timing.bandwidth()},
                                     {"bus_bytes_per_second", timing.bus_bandwidth()}};
    add_power(use, fields);
    report.row(name_of(timing.pattern), std::move(fields));
  }
}

/// Runs on every rank; rank 0 reports.
void run(const BenchConfig& config, const PretrainConfig& model, const CommandRanks& ranks, const OwnRank& own,
         World& world, std::ostream& out) {
  const bool has_processes = own.world != nullptr;
  const DeviceChoice& device = ranks.device;
  BenchDevice bench(device.kind, ranks.num_threads, device.cuda_device);
  if (own.gpu_ranks) own.gpu_ranks->set_compute_stream(bench.device().cuda_stream().stream);
  const auto measure = [&](Progress& progress) {
    return measure_comm(world, bench, model.transformer.params_dtype, message_bytes_of(config),
                        measure_options_of(config, 0), progress);
  };
  SilentProgress silent;
  if (world.rank() > 0) {
    measure(silent);
    return;
  }
  PosixFileSystem files;
  ProgressBar progress(bar_options(out, has_processes), [&](std::string_view text) { out << text << std::flush; });
  const DeviceFacts facts = facts_of(device);
  BenchReport report(config, model, facts, ranks.num_threads, files, progress);
  report.line(fmt::format("{}; {} ranks, {}, {}", device.text, world.size(),
                          has_processes ? "processes" : "threads of one process",
                          name_of(model.transformer.params_dtype)));
  PowerRecorder power(facts.meter.get());
  power.start();
  const std::vector<CommTiming> timings = measure(progress);
  report_timings(timings, power.stop(), report);
}

}  // namespace

int bench_comm(const BenchConfig& config, const LaunchEnvironment& launch, std::vector<std::string> command_line,
               std::ostream& out, std::ostream& err) {
  std::optional<PretrainConfig> model;
  std::optional<CommandRanks> ranks;
  const int status = run_command(kCommBench, err, [&] {
    run_before_meeting(launch, [&] {
      PretrainConfig read = pretrain_config_of(config, launch.size);
      require<ConfigError>(read.parallel.world_size > 1,
                           "one rank has no other to communicate with. Start several: --nproc-per-node 4, or mpirun -n "
                           "4 megatron bench comm.");
      ranks = command_ranks(read, launch, std::move(command_line));
      model = std::move(read);
    });
  });
  if (!model) return status;
  return run_on_ranks(*ranks, err, [&](const OwnRank& own) {
    const auto rank = [&](World& world) { run(config, *model, *ranks, own, world, out); };
    if (own.world) return rank(*own.world);
    ThreadWorld threads(ranks->num_ranks, ranks->timeout);
    run_rank_threads(threads, rank, report_and_end(kCommBench, err));
  });
}

}  // namespace megatron
