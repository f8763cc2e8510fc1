#include "megatron/telemetry/training_tags.h"

#include <fmt/core.h>

#include <string>
#include <utility>

#include "megatron/telemetry/event_file_writer.h"

namespace megatron {
namespace {

void add(TaggedScalars& tags, std::string tag, double value) { tags.by_iteration.push_back({std::move(tag), value}); }

void add_with_twin(TaggedScalars& tags, const std::string& tag, double value) {
  add(tags, tag, value);
  tags.by_samples.push_back({tag + " vs samples", value});
}

}  // namespace

TaggedScalars iteration_tags(const IterationScalars& s) {
  TaggedScalars tags;
  const auto add_if = [&tags](const char* tag, const std::optional<double>& value) {
    if (value) add_with_twin(tags, tag, *value);
  };
  add_if("learning-rate", s.learning_rate);
  add_with_twin(tags, "batch-size", static_cast<double>(s.batch_size));
  for (const NamedValue& loss : s.losses) add_with_twin(tags, loss.name, loss.value);
  add_if("loss-scale", s.loss_scale);
  if (s.world_size) add_with_twin(tags, "world-size", static_cast<double>(*s.world_size));
  add_if("grad-norm", s.grad_norm);
  add_if("num-zeros", s.num_zeros);
  add_if("params-norm", s.params_norm);
  if (s.skipped_samples > 0) add(tags, "skipped-train-samples", static_cast<double>(s.skipped_samples));
  if (s.memory) {
    add(tags, "mem-reserved-bytes", static_cast<double>(s.memory->reserved_bytes));
    add(tags, "mem-allocated-bytes", static_cast<double>(s.memory->allocated_bytes));
    add(tags, "mem-max-allocated-bytes", static_cast<double>(s.memory->max_allocated_bytes));
  }
  if (s.num_allocations) add(tags, "mem-allocated-count", static_cast<double>(*s.num_allocations));
  if (s.max_attention_logit) add(tags, "max_attention_logit", *s.max_attention_logit);
  tags.by_iteration.insert(tags.by_iteration.end(), s.extra.begin(), s.extra.end());
  return tags;
}

TaggedScalars interval_tags(double seconds_per_iteration, std::optional<double> tflops_per_gpu,
                            std::span<const NamedValue> timers) {
  TaggedScalars tags;
  add(tags, "iteration-time", seconds_per_iteration);
  if (tflops_per_gpu) add(tags, "throughput", *tflops_per_gpu);
  for (const NamedValue& timer : timers) add(tags, timer.name + "-time", timer.value);
  return tags;
}

TaggedScalars speed_tags(const TrainingLogValues& values) {
  TaggedScalars tags;
  if (values.tokens_per_second) add(tags, "tokens-per-second", *values.tokens_per_second);
  if (values.mfu_percent) add(tags, "mfu-percent", *values.mfu_percent);
  if (values.kernel_ceiling_percent) add(tags, "kernel-ceiling-percent", *values.kernel_ceiling_percent);
  return tags;
}

TaggedScalars validation_tags(std::span<const NamedValue> losses, std::string_view suffix, bool with_perplexity) {
  TaggedScalars tags;
  for (const NamedValue& loss : losses) {
    const std::string tag = fmt::format("{} validation{}", loss.name, suffix);
    add_with_twin(tags, tag, loss.value);
    if (with_perplexity) add_with_twin(tags, tag + " ppl", perplexity(loss.value));
  }
  return tags;
}

void write_tags(EventFileWriter& writer, WallTime now, std::int64_t iteration, std::int64_t consumed_samples,
                const TaggedScalars& tags) {
  writer.add_scalars(now, iteration, tags.by_iteration);
  writer.add_scalars(now, consumed_samples, tags.by_samples);
}

}  // namespace megatron
