// How fast training goes: tokens and operations a second, and the parts of the device's best that they are.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "megatron/base/file_system.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// The best speed of the device of a rank, in operations a second by Megatron's count; absent: unknown.
struct DeviceSpeed {
  std::optional<double> peak_flops;     // of the data sheet, or of the fastest matmul that was measured
  std::optional<double> ceiling_flops;  // of a step, if nothing but its kernels took time
  std::string text;                     // for the banner: both, and where they are from
  std::string cache_file = {};          // that holds them for later runs; empty: none
};

struct TrainingSpeed {
  double tokens_per_second = 0;  // of all ranks together
  double tflops_per_gpu = 0;     // of a rank, by Megatron's count; @see theoretical_flops
  std::optional<double> mfu_percent, kernel_ceiling_percent;
};
/// @param config  resolved, its vocabulary included; its --kernel-ceiling goes before that of `best`
/// @param num_samples  of all ranks, in `seconds`
TrainingSpeed training_speed(const PretrainConfig& config, const DeviceSpeed& best, int64_t num_samples,
                             double seconds);

/// "12300 tokens/s, MFU 41.0 %, 82.1 % of ceiling": what is known of it.
std::string speed_text(const TrainingSpeed& speed);

/// The speed of the last steps, for the progress bar.
class RecentSpeed {
 public:
  RecentSpeed(const PretrainConfig& config, DeviceSpeed best) : config_(config), best_(std::move(best)) {}

  /// A step, without what comes between steps. The first one counts for nothing: it sets up what later ones find.
  void add(int64_t num_samples, double seconds);
  /// Empty before the second step.
  std::string text() const;
  const DeviceSpeed& best() const { return best_; }
  /// Forgets a measured ceiling that training exceeds, with the file that holds it: other programs slowed its
  /// measurement down. --kernel-ceiling stands. @return what to report; empty if the ceiling can be right
  std::string drop_exceeded_ceiling(FileSystem& files);

 private:
  struct Step {
    int64_t num_samples;
    double seconds;
  };
  std::optional<TrainingSpeed> speed() const;

  const PretrainConfig& config_;
  DeviceSpeed best_;
  std::deque<Step> steps_;
  bool has_begun_ = false;
};

}  // namespace megatron
