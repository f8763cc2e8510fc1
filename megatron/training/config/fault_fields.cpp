// Checks of results, of replicas and of the speed of ranks.
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

constexpr double kLargestPort = 65535;

void describe_results(FieldTable& table, FaultConfig& faults) {
  table.begin_group("Results that cannot be right",
                    "A loss or a gradient that is not finite changes no weight. The step is computed again from the "
                    "same state and batch: another result means a fault of the hardware, and the same one is either "
                    "right or a lasting fault, which a restart on another host tells apart (exit statuses 16 and 17).");
  table
      .add("rerun_mode", faults.rerun_mode,
           "validate_results: compute a rejected step again; disabled: stop at once; report_stats: compute every step "
           "twice, and report how far both differ")
      .choice_also("report_determinism_stats", "report_stats");
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
  table.add("error_injection_type", faults.error_injection_type,
            "what such a step looks like when it is computed again, here and after a restart");
}

void describe_ranks(FieldTable& table, FaultConfig& faults) {
  table.begin_group("Ranks that differ from others", "Checks that cost a little time, and are off by default.");
  table
      .add("check_weight_hash_across_dp_replicas_interval", faults.check_weight_hash_across_dp_replicas_interval,
           "steps between comparisons of the weights of all replicas, which are equal bit for bit; also before the "
           "first step")
      .at_least(1);
  table.add("log_straggler", faults.log_straggler,
            "with each log line, the ranks of the shortest and longest forward passes and batch reads, and the slowest "
            "rank with what it spends its time on. On a GPU the host waits for every forward and backward");
  table.add("disable_straggler_on_startup", faults.disable_straggler_on_startup,
            "measure nothing until the controller's port is asked");
  table
      .add("straggler_ctrlr_port", faults.straggler_ctrlr_port,
           "port on the host of rank 0: each HTTP request to it turns --log-straggler on or off")
      .at_least(1)
      .at_most(kLargestPort);
  table
      .add("straggler_minmax_count", faults.straggler_minmax_count,
           "above 1: also list so many of the slowest and fastest ranks")
      .at_least(1);
}

}  // namespace

void describe_faults(FieldTable& table, PretrainConfig& config) {
  describe_results(table, config.faults);
  describe_ranks(table, config.faults);
}

}  // namespace megatron
