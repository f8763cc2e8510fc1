#include "megatron/training/training_speed.h"

#include <fmt/core.h>

#include "megatron/base/error.h"
#include "megatron/telemetry/progress.h"
#include "megatron/training/planning/theoretical_flops.h"

namespace megatron {
namespace {

constexpr double kTera = 1e12;
constexpr size_t kNumRecentSteps = 16;
constexpr double kMostPercent = 110;  // of a correct ceiling: timings of the same kernels differ by a few percent

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

std::optional<TrainingSpeed> RecentSpeed::speed() const {
  int64_t num_samples = 0;
  double seconds = 0;
  for (const Step& step : steps_) {
    num_samples += step.num_samples;
    seconds += step.seconds;
  }
  if (seconds <= 0) return std::nullopt;
  return training_speed(config_, best_, num_samples, seconds);
}

std::string RecentSpeed::text() const {
  const std::optional<TrainingSpeed> recent = speed();
  return recent ? speed_text(*recent) : "";
}

std::string RecentSpeed::drop_exceeded_ceiling(FileSystem& files) {
  if (config_.logging.kernel_ceiling || !best_.ceiling_flops) return "";
  const std::optional<TrainingSpeed> recent = speed();
  if (!recent || recent->kernel_ceiling_percent.value() <= kMostPercent) return "";
  best_.ceiling_flops.reset();
  if (recent->mfu_percent > 100.0) best_.peak_flops.reset();
  std::string text = fmt::format(
      "training runs at {:.0f} % of the measured kernel ceiling, so other programs slowed the measurement down: the "
      "ceiling is dropped",
      *recent->kernel_ceiling_percent);
  if (best_.cache_file.empty()) return text;
  try {
    files.remove(best_.cache_file);
    return text + fmt::format(" with its file {}, and the next run measures it again", best_.cache_file);
  } catch (const IoError& error) {
    return text +
           fmt::format("; remove {} so that the next run measures it again ({})", best_.cache_file, error.what());
  }
}

}  // namespace megatron
