// Learning rate and weight decay as functions of the samples consumed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

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

/// What a ParamScheduler is built from. Lengths are in samples; a warm-up given as a fraction need not be whole.
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

/// What a checkpoint keeps of a schedule. The style and length of a WSD decay and the initial rate are not kept.
struct ParamSchedulerState {
  double max_lr = 0.0;
  double lr_warmup_steps = 0;
  int64_t num_steps = 0;  ///< samples consumed by successful steps
  LrDecayStyle lr_decay_style = LrDecayStyle::kLinear;
  int64_t lr_decay_steps = 0;
  double min_lr = 0.0;
  double start_wd = 0.0;
  double end_wd = 0.0;
  WeightDecayIncrStyle wd_incr_style = WeightDecayIncrStyle::kConstant;
  int64_t wd_incr_steps = 0;
  bool has_weight_decay = true;  ///< false for files that are older than the weight-decay keys
};

/// Where one parameter group departs from the run.
struct ParamGroupSchedule {
  std::optional<double> max_lr;
  std::optional<double> min_lr;
  double wd_mult = 1.0;
};

/// Warm-up, decay and weight decay over samples. Source: specs of Megatron-LM's OptimizerParamScheduler;
/// WSD: Hu et al. 2024 (arXiv:2404.06395).
class ParamScheduler {
 public:
  /// @throw ConfigError for lengths or rates that contradict each other; lists all of them.
  explicit ParamScheduler(const ParamSchedulerConfig& config);

  /// Advances by the samples of one successful step.
  void step(int64_t samples) { num_steps_ += samples; }
  int64_t num_steps() const { return num_steps_; }
  double lr(const ParamGroupSchedule& group = {}) const;
  double weight_decay(const ParamGroupSchedule& group = {}) const;

  ParamSchedulerState state() const;
  /// Adds the stored steps to the current ones, and takes over or compares the rest as the two flags say.
  /// As in Megatron, until the next step() the weight decay follows the values from before the load.
  /// @throw CheckpointError if neither flag is given and a value differs; lists all of them.
  void load(const ParamSchedulerState& stored);

 private:
  double decay_factor(double fraction, double samples) const;

  ParamSchedulerConfig config_;
  int64_t num_steps_ = 0;
};

}  // namespace megatron
