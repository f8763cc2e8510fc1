// Learning rate and weight decay as functions of the samples consumed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

enum class LrDecayStyle { kConstant, kLinear, kCosine, kInverseSquareRoot, kWsd };
enum class WsdDecayStyle { kExponential, kLinear, kCosine, kMinusSqrt };
enum class WeightDecayIncrStyle { kConstant, kLinear, kCosine };

constexpr auto names_of_enum(LrDecayStyle) {
  return std::to_array<std::pair<LrDecayStyle, std::string_view>>(
      {{LrDecayStyle::kConstant, "constant"},
       {LrDecayStyle::kLinear, "linear"},
       {LrDecayStyle::kCosine, "cosine"},
       {LrDecayStyle::kInverseSquareRoot, "inverse-square-root"},
       {LrDecayStyle::kWsd, "WSD"}});
}
constexpr auto names_of_enum(WsdDecayStyle) {
  return std::to_array<std::pair<WsdDecayStyle, std::string_view>>({{WsdDecayStyle::kExponential, "exponential"},
                                                                    {WsdDecayStyle::kLinear, "linear"},
                                                                    {WsdDecayStyle::kCosine, "cosine"},
                                                                    {WsdDecayStyle::kMinusSqrt, "minus_sqrt"}});
}
constexpr auto names_of_enum(WeightDecayIncrStyle) {
  return std::to_array<std::pair<WeightDecayIncrStyle, std::string_view>>(
      {{WeightDecayIncrStyle::kConstant, "constant"},
       {WeightDecayIncrStyle::kLinear, "linear"},
       {WeightDecayIncrStyle::kCosine, "cosine"}});
}

/// The settings of a ParamScheduler. Lengths are in samples; a warm-up given as a fraction need not be whole.
struct ParamSchedulerConfig {
  double init_lr = 0.0;  ///< at sample 0 of the warm-up
  double max_lr = 0.0;
  double min_lr = 0.0;
  double lr_warmup_steps = 0;
  int64_t lr_decay_steps = 0;
  LrDecayStyle lr_decay_style = LrDecayStyle::kLinear;
  std::optional<int64_t> wsd_decay_steps;  ///< needed by kWsd
  WsdDecayStyle lr_wsd_decay_style = WsdDecayStyle::kExponential;
  double start_wd = 0.0;
  double end_wd = 0.0;
  int64_t wd_incr_steps = 0;
  WeightDecayIncrStyle wd_incr_style = WeightDecayIncrStyle::kConstant;
  bool override_opt_param_scheduler = false;        ///< loading keeps these values
  bool use_checkpoint_opt_param_scheduler = false;  ///< loading takes the checkpoint's values
};

/// The settings in which one parameter group differs from the run.
struct ParamGroupSchedule {
  std::optional<double> max_lr;
  std::optional<double> min_lr;
  std::optional<double> start_wd;
  std::optional<double> end_wd;  ///< equal to start_wd while the style is constant
  double wd_mult = 1.0;
};

/// The unit in which messages give lengths: samples, or iterations of so many.
struct ScheduleUnit {
  std::string_view name = "sample";
  int64_t num_samples = 1;
};
/// The contradictions in `config`: one text for each rule that is broken.
std::vector<std::string> mistakes_of(const ParamSchedulerConfig& config, const ScheduleUnit& unit = {});

/// The part of a schedule that a checkpoint keeps: all but the style and length of a WSD decay and the initial rate.
struct ParamSchedulerState {
  double max_lr = 0.0;
  double lr_warmup_steps = 0;
  int64_t num_steps = 0;  ///< samples of successful steps
  LrDecayStyle lr_decay_style = LrDecayStyle::kLinear;
  int64_t lr_decay_steps = 0;
  double min_lr = 0.0;
  /// Absent in old files.
  std::optional<double> start_wd, end_wd;
  std::optional<WeightDecayIncrStyle> wd_incr_style;
  std::optional<int64_t> wd_incr_steps;
};

/// Warm-up, decay and weight decay over samples, as Megatron's OptimizerParamScheduler.
/// Warm-up-stable-decay: Hu et al. 2024 (arXiv:2404.06395).
class ParamScheduler {
 public:
  /// @throw ConfigError that lists mistakes_of(config), if there are any.
  explicit ParamScheduler(const ParamSchedulerConfig& config);

  /// Advances by the samples of one successful step.
  void step(int64_t samples);
  /// Samples consumed so far.
  int64_t num_steps() const { return num_steps_; }
  double lr(const ParamGroupSchedule& group = {}) const;
  /// @throw ConfigError if the group's own start and end differ while the style is constant.
  double weight_decay(const ParamGroupSchedule& group = {}) const;

  ParamSchedulerState state() const;
  /// Adds the stored samples to the current ones. Of the rest the flags say which side wins; without a flag they must
  /// agree. As in Megatron, the weight decay follows the values from before the load until the next step().
  /// @throw CheckpointError that lists the values that differ; nothing is changed then.
  void load(const ParamSchedulerState& stored);

 private:
  ParamSchedulerConfig config_;
  std::optional<ParamSchedulerConfig> config_before_load_;  ///< what weight decay follows until the next step
  int64_t num_steps_ = 0;
};

}  // namespace megatron
