#include "megatron/training/training_speed.h"

#include <fmt/core.h>

#include "megatron/telemetry/progress.h"
#include "megatron/training/planning/theoretical_flops.h"

namespace megatron {
namespace {

constexpr double kTera = 1e12;
constexpr size_t kNumRecentSteps = 16;

}  // namespace

TrainingSpeed training_speed(const PretrainConfig& config, const DeviceSpeed& best, int64_t num_samples,
                             double seconds) {
  const int64_t s = config.model.seq_length.value();
  const double flops = theoretical_flops(config.transformer, num_samples, s) /
                       (seconds * static_cast<double>(config.parallel.world_size));
  TrainingSpeed speed{.tokens_per_second = static_cast<double>(num_samples * s) / seconds,
                      .tflops_per_gpu = flops / kTera};
  if (best.peak_flops) speed.mfu_percent = 100 * flops / *best.peak_flops;
  if (const auto& ceiling = config.logging.kernel_ceiling)
    speed.kernel_ceiling_percent = 100 * speed.tflops_per_gpu / *ceiling;
  else if (best.ceiling_flops)
    speed.kernel_ceiling_percent = 100 * flops / *best.ceiling_flops;
  return speed;
}

std::string speed_text(const TrainingSpeed& speed) {
  std::string text = count_text(static_cast<int64_t>(speed.tokens_per_second)) + " tokens/s";
  if (speed.mfu_percent) text += fmt::format(", MFU {:.1f} %", *speed.mfu_percent);
  if (speed.kernel_ceiling_percent) text += fmt::format(", {:.1f} % of ceiling", *speed.kernel_ceiling_percent);
  return text;
}

void RecentSpeed::add(int64_t num_samples, double seconds) {
  if (!std::exchange(has_begun_, true)) return;
  steps_.push_back({num_samples, seconds});
  if (steps_.size() > kNumRecentSteps) steps_.pop_front();
}

std::string RecentSpeed::text() const {
  int64_t num_samples = 0;
  double seconds = 0;
  for (const Step& step : steps_) {
    num_samples += step.num_samples;
    seconds += step.seconds;
  }
  return seconds > 0 ? speed_text(training_speed(config_, best_, num_samples, seconds)) : "";
}

}  // namespace megatron
