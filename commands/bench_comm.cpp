#include "commands/bench_comm.h"

#include <fmt/format.h>

#include <optional>
#include <ostream>

#include "commands/bench_report.h"
#include "commands/exit_code.h"
#include "commands/job.h"
#include "commands/rank_thread_failures.h"
#include "commands/terminal.h"
#include "megatron/bench/comm_bench.h"
#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/device_choice.h"

namespace megatron {
namespace {

constexpr std::string_view kName = "bench";

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

/// What every rank does; rank 0 reports.
void run(const BenchConfig& config, const PretrainConfig& model, const DeviceChoice& choice, int num_threads,
         World& world, bool has_launcher, std::ostream& out) {
  BenchDevice bench(choice.kind, num_threads);
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
  ProgressBar progress(bar_options(out, has_launcher), [&](std::string_view text) { out << text << std::flush; });
  const DeviceFacts facts = facts_of(choice.kind);
  BenchReport report(config, model, facts.name, num_threads, files, progress);
  report.line(fmt::format("{}; {} ranks, {}, {}", choice.text, world.size(),
                          has_launcher ? "processes" : "threads of one process",
                          name_of(model.transformer.params_dtype)));
  PowerRecorder power(facts.meter.get());
  power.start();
  const std::vector<CommTiming> timings = measure(progress);
  report_timings(timings, power.stop(), report);
}

}  // namespace

int bench_comm(const BenchConfig& config, const LaunchEnvironment& launch, std::ostream& out, std::ostream& err) {
  std::optional<PretrainConfig> model;
  DeviceChoice choice;
  int num_threads = 1;
  const int status = run_command(kName, err, [&] {
    run_before_meeting(launch, [&] {
      require_connected(launch, process_environment(), {own_program(), std::string(kName), "comm", "FLAGS"});
      PretrainConfig read = pretrain_config_of(config, launch.size);
      require<ConfigError>(read.parallel.world_size > 1,
                           "one rank has nobody to talk to. Say how many there are: --nproc-per-node 4, or mpirun -n "
                           "4 megatron bench comm.");
      num_threads = num_threads_of(read.launch, launch);
      choice = choose_device(device_needs_of(read, num_threads));
      model = std::move(read);
    });
  });
  if (!model) return status;
  const auto timeout = model->parallel.timeout();
  const auto rank = [&](World& world) { run(config, *model, choice, num_threads, world, launch.size > 1, out); };
  if (launch.size > 1) return run_job(launch, {kName, timeout, num_threads}, err, rank);
  return run_command(kName, err, [&] {
    ThreadWorld ranks(static_cast<int>(model->parallel.world_size), timeout);
    run_rank_threads(ranks, rank, report_and_end(kName, err));
  });
}

}  // namespace megatron
