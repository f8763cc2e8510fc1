#include "megatron/telemetry/training_log.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace megatron {

std::string training_log_line(const TrainingLogValues& v) {
  std::string line;
  const auto add = [&line]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(line), format, std::forward<Args>(args)...);
  };
  add(" [{}]", date_time_microseconds_text(v.time));
  add(" iteration {:8d}/{:8d} |", v.iteration, v.train_iterations);
  add(" consumed samples: {:12d} |", v.consumed_samples);
  if (v.skipped_samples > 0) add(" skipped samples: {:12d} |", v.skipped_samples);
  add(" elapsed time per iteration (ms): {:.1f} |", v.elapsed_ms_per_iteration);
  if (v.tflops_per_gpu) add(" throughput per GPU (TFLOP/s/GPU): {:.1f} |", *v.tflops_per_gpu);
  if (v.energy_joules_per_gpu) add(" energy per GPU (J/iter/GPU): {:.1f} |", *v.energy_joules_per_gpu);
  if (v.power_watts_per_gpu) add(" power per GPU (W/GPU): {:.1f} |", *v.power_watts_per_gpu);
  if (v.learning_rate) add(" learning rate: {:.6E} |", *v.learning_rate);
  add(" global batch size: {:5d} |", v.global_batch_size);
  for (const NamedValue& loss : v.losses)
    if (loss.value > 0.0) add(" {}: {:.6E} |", loss.name, loss.value);
  add(" loss scale: {:.1f} |", v.loss_scale);
  if (v.grad_norm) add(" grad norm: {:.3f} |", *v.grad_norm);
  if (v.num_zeros) add(" num zeros: {} |", python_float_text(*v.num_zeros));
  if (v.params_norm) add(" params norm: {:.3f} |", *v.params_norm);
  if (v.max_attention_logit) add(" max attention logit: {:.3f} |", *v.max_attention_logit);
  add(" number of skipped iterations: {:3d} |", v.skipped_iterations);
  add(" number of nan iterations: {:3d} |", v.nan_iterations);
  if (v.repeated_iterations > 0) add(" number of repeated iterations: {:3d} |", v.repeated_iterations);
  if (v.tokens_per_second) add(" tokens per second: {:.1f} |", *v.tokens_per_second);
  if (v.mfu_percent) add(" MFU (%): {:.1f} |", *v.mfu_percent);
  if (v.kernel_ceiling_percent) add(" percent of kernel ceiling: {:.1f} |", *v.kernel_ceiling_percent);
  if (v.data_wait_ms_per_iteration) add(" data wait per iteration (ms): {:.1f} |", *v.data_wait_ms_per_iteration);
  return line;
}

std::string validation_log_block(std::string_view suffix, std::string_view prefix,
                                 const std::vector<NamedValue>& losses) {
  std::string line = fmt::format(" validation{} loss at {} | ", suffix, prefix);
  for (const NamedValue& loss : losses)
    line +=
        fmt::format("{} value: {:.6E} | {} PPL: {:.6E} | ", loss.name, loss.value, loss.name, perplexity(loss.value));
  const std::string dashes(line.size() + 1, '-');
  return fmt::format("{}\n{}\n{}", dashes, line, dashes);
}

double perplexity(double loss) { return std::exp(std::min(20.0, loss)); }

std::string python_float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

}  // namespace megatron
