// The lines that a training run prints at each log interval and after each validation, in Megatron-LM's exact form.
// Scripts that read Megatron's logs read ours. Source: Megatron-LM, megatron/training/training.py, training_log().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/telemetry/timestamp.h"

namespace megatron {

/// A number with a name, such as {"lm loss", 2.31}.
struct NamedValue {
  std::string name;
  double value = 0.0;

  bool operator==(const NamedValue&) const = default;
};

/// The values of the line of one log interval. An absent value leaves its piece out.
struct TrainingLogValues {
  WallTime time;
  std::int64_t iteration = 0;
  std::int64_t train_iterations = 0;
  std::int64_t consumed_samples = 0;
  std::int64_t skipped_samples = 0;  // left out when zero
  double elapsed_ms_per_iteration = 0.0;
  std::optional<double> tflops_per_gpu;              // --log-throughput
  std::optional<double> tokens_per_second;           // of all ranks together; not in Megatron, like the next two
  std::optional<double> mfu_percent;                 // percent of the device's peak
  std::optional<double> kernel_ceiling_percent;      // percent of the speed of a step's kernels alone
  std::optional<double> data_wait_ms_per_iteration;  // for the batches, on this rank; not in Megatron
  std::optional<double> energy_joules_per_gpu;       // per iteration; --log-energy
  std::optional<double> power_watts_per_gpu;         // --log-energy
  std::optional<double> learning_rate;               // largest over the model-parallel ranks, default parameter group
  std::int64_t global_batch_size = 0;                // samples
  std::vector<NamedValue> losses;                    // means over the iterations that were not skipped, in this order
  std::vector<NamedValue> extra = {};                // of the last step, for JSON lines alone
  double loss_scale = 1.0;
  std::optional<double> grad_norm;            // of the last iteration; absent when it was skipped
  std::optional<double> num_zeros;            // --log-num-zeros-in-grad
  std::optional<double> params_norm;          // --log-params-norm
  std::optional<double> max_attention_logit;  // --log-max-attention-logit, --qk-clip
  std::int64_t repeated_iterations = 0;       // left out when zero; not in Megatron
  std::int64_t skipped_iterations = 0;
  std::int64_t nan_iterations = 0;
};

/// One line without a line end, with our values after Megatron's. A loss that is not above zero, NaN included, is left
/// out, as Megatron does.
std::string training_log_line(const TrainingLogValues& values);

/// Three lines, the last without a line end: dashes, the values with their perplexity exp(min(loss, 20)), dashes.
/// @param suffix  "" or "-name" of one of several validation sets.
/// @param prefix  the place in the run, such as "iteration 1000" or "iteration 1000 on test set".
std::string validation_log_block(std::string_view suffix, std::string_view prefix,
                                 const std::vector<NamedValue>& losses);

/// exp(loss), cut at exp(20) so that an untrained model does not overflow.
double perplexity(double loss);

/// Text of a number as Python prints it: the shortest that reads back equal, with ".0" where it is whole.
std::string python_float_text(double value);

}  // namespace megatron
