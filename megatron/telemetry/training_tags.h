// TensorBoard's tags for the numbers of a run. They are Megatron-LM's, so that dashboards carry over.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "megatron/telemetry/run_messages.h"
#include "megatron/telemetry/training_log.h"

namespace megatron {

class EventFileWriter;

/// The points of one step: `by_iteration` has the iteration as x axis, `by_samples` the consumed samples.
struct TaggedScalars {
  std::vector<NamedValue> by_iteration;
  std::vector<NamedValue> by_samples;  // the same values, with " vs samples" at the tag's end
};

/// The values of one iteration. Absent values are left out.
struct IterationScalars {
  std::optional<double> learning_rate;
  std::int64_t batch_size = 0;
  std::vector<NamedValue> losses;
  std::optional<double> loss_scale;
  std::optional<std::int64_t> world_size;  // --log-world-size-to-tensorboard
  std::optional<double> grad_norm;
  std::optional<double> num_zeros;
  std::optional<double> params_norm;
  std::int64_t skipped_samples = 0;             // left out when zero
  std::optional<DeviceMemoryUse> memory;        // --log-memory-to-tensorboard
  std::optional<std::int64_t> num_allocations;  // with memory
  std::optional<double> max_attention_logit;    // --log-max-attention-logit
  std::vector<NamedValue> extra;                // full tags without twin, such as "moe/load_balancing_loss_layer_3"
};

/// Written every --tensorboard-log-interval iterations.
TaggedScalars iteration_tags(const IterationScalars& scalars);

/// Every --log-interval iterations with --log-timers-to-tensorboard.
/// @param timers  longest over the ranks, seconds; tagged "<name>-time".
TaggedScalars interval_tags(double seconds_per_iteration, std::optional<double> tflops_per_gpu,
                            std::span<const NamedValue> timers);

/// Every --log-interval iterations: tokens per second, MFU and percent of the kernel ceiling, those that are known.
/// Megatron-LM has no such tags.
TaggedScalars speed_tags(const TrainingLogValues& values);

/// After a validation.
/// @param suffix           "" or "-name" of one of several validation sets.
/// @param with_perplexity  --log-validation-ppl-to-tensorboard.
TaggedScalars validation_tags(std::span<const NamedValue> losses, std::string_view suffix, bool with_perplexity);

/// @throw IoError
void write_tags(EventFileWriter& writer, WallTime now, std::int64_t iteration, std::int64_t consumed_samples,
                const TaggedScalars& tags);

}  // namespace megatron
