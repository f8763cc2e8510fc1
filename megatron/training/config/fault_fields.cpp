// Describes the checks of results, of replicas and of the speed of ranks.
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

constexpr double kLargestPort = 65535;

void describe_results(FieldTable& table, PretrainConfig& config) {
  FaultConfig& faults = config.faults;
  table
      .begin_group("Results that cannot be right",
                   "A loss or a gradient that is not finite changes no weight. The step is computed again from the "
                   "same state and batch: another result means a fault of the hardware, and the same one is either "
                   "right or a lasting fault, which a restart on another host tells apart (exit statuses 16 and 17).")
      .for_whole_runs();
  table
      .add("rerun_mode", faults.rerun_mode,
           "validate_results: compute a rejected step again; disabled: stop at once; report_stats: compute every step "
           "twice, and report how far both differ")
      .choice_also("report_determinism_stats", "report_stats")
      .differs({.megatron =
                    "looks at each rank's losses and buckets, not in the first step; report_stats fails at the start",
                .ours = "looks at the loss and the gradient norm of all ranks, from the first step on; "
                        "rejected_step.json beside the checkpoints says what the next run is to compare"});
  table.add("check_for_spiky_loss", faults.check_for_spiky_loss,
            "reject a loss of more than 10 times the largest of the first 100, and go on if it is the same again; the "
            "host looks at each loss before the optimizer steps");
  table.add("check_for_large_grads", faults.check_for_large_grads,
            "the same for the norm of the gradients, which may differ by a thousandth");
  table.add("result_rejected_tracker_filename", faults.result_rejected_tracker_filename,
            "file of rejected iterations, which the next run skips");
  table
      .add("error_injection_rate", faults.error_injection_rate,
           "to test a set-up: reject one step in so many that is right; 0: none")
      .at_least(0);
  table
      .add("error_injection_type", faults.error_injection_type,
           "what such a step looks like when it is computed again, here and after a restart")
      .needs("--error-injection-rate", [&config] { return config.faults.error_injection_rate > 0; })
      .such_as("--error-injection-rate 1000 --error-injection-type correct_result");
}

void describe_ranks(FieldTable& table, PretrainConfig& config) {
  FaultConfig& faults = config.faults;
  table.begin_group("Ranks that differ from others", "Checks that cost a little time, and are off by default.")
      .for_whole_runs();
  table
      .add("check_weight_hash_across_dp_replicas_interval", faults.check_weight_hash_across_dp_replicas_interval,
           "steps between comparisons of the weights of all replicas, which are equal bit for bit; also before the "
           "first step")
      .at_least(1)
      .needs("more than one data-parallel rank", [&config] { return config.parallel.has_replicas(); });
  table
      .add("log_straggler", faults.log_straggler,
           "with each log line, the ranks of the shortest and longest forward passes and batch reads, and the slowest "
           "rank with what it spends its time on. On a GPU the host waits for every forward and backward")
      .differs({.megatron = "times forward passes alone, and reads power, temperature and clock of GPUs",
                .ours = "times computing, data and waits, and names the slowest rank and what it spends its time on",
                .in_force = [&config] { return config.faults.log_straggler; }});
  table
      .add("disable_straggler_on_startup", faults.disable_straggler_on_startup,
           "measure nothing until the controller's port is asked")
      .needs("--log-straggler", [&config] { return config.faults.log_straggler; })
      .such_as("--log-straggler --disable-straggler-on-startup --straggler-ctrlr-port 65000");
  table
      .add("straggler_ctrlr_port", faults.straggler_ctrlr_port,
           "port on the host of rank 0: each HTTP request to it turns --log-straggler on or off")
      .at_least(1)
      .at_most(kLargestPort)
      .needs("--log-straggler", [&config] { return config.faults.log_straggler; })
      .such_as("--log-straggler --straggler-ctrlr-port 65000");
  table
      .add("straggler_minmax_count", faults.straggler_minmax_count,
           "above 1: also list so many of the slowest and fastest ranks")
      .at_least(1)
      .needs("--log-straggler", [&config] { return config.faults.log_straggler; })
      .such_as("--log-straggler --straggler-minmax-count 4");
}

}  // namespace

void describe_faults(FieldTable& table, PretrainConfig& config) {
  describe_results(table, config);
  describe_ranks(table, config);
}

}  // namespace megatron
