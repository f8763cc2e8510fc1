#include "megatron/optimizer/param_scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"

namespace megatron {
namespace {

constexpr double kPi = std::numbers::pi;

// The fraction of the learning rate's range that is left in the decay of WSD, after its samples at the full rate.
double wsd_factor(WsdDecayStyle style, double fraction) {
  switch (style) {
    case WsdDecayStyle::kExponential:
      return 2.0 * std::pow(0.5, fraction) - 1.0;
    case WsdDecayStyle::kLinear:
      return 1.0 - fraction;
    case WsdDecayStyle::kCosine:
      return 0.5 * (std::cos(kPi * fraction) + 1.0);
    case WsdDecayStyle::kMinusSqrt:
      return 1.0 - std::sqrt(fraction);
  }
  return 0.0;
}

double weight_decay_factor(WeightDecayIncrStyle style, double fraction) {
  return style == WeightDecayIncrStyle::kLinear ? fraction : 0.5 * (std::cos(kPi * (1.0 - fraction)) + 1.0);
}

template <class E>
std::string_view name_of_enum(E value) {
  for (const auto& [enumerator, name] : names_of_enum(E{}))
    if (enumerator == value) return name;
  return {};
}

std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(int64_t value) { return fmt::format("{}", value); }
std::string text_of(LrDecayStyle value) { return std::string(name_of_enum(value)); }
std::string text_of(WeightDecayIncrStyle value) { return std::string(name_of_enum(value)); }

// Merges a checkpoint's values into a configuration, and keeps a list of those that may not differ but do.
class Merge {
 public:
  explicit Merge(const ParamSchedulerConfig& config) : merged_(config) {}

  template <class T>
  void take(std::string_view name, T ParamSchedulerConfig::*member, const T& stored) {
    T& current = merged_.*member;
    if (merged_.override_opt_param_scheduler) return;
    if (!merged_.use_checkpoint_opt_param_scheduler && current != stored)
      differing_.push_back(
          fmt::format("{}: {} in the checkpoint, {} in this run", name, text_of(stored), text_of(current)));
    current = stored;
  }
  template <class T>
  void take(std::string_view name, T ParamSchedulerConfig::*member, const std::optional<T>& stored) {
    if (stored) take(name, member, *stored);
  }
  const ParamSchedulerConfig& result() const {
    require<CheckpointError>(differing_.empty(),
                             "the schedule of the checkpoint is another one: {}. --override-opt_param-scheduler keeps "
                             "this run's, --use-checkpoint-opt_param-scheduler takes the checkpoint's",
                             joined(differing_, "; "));
    return merged_;
  }

 private:
  ParamSchedulerConfig merged_;
  std::vector<std::string> differing_;
};

}  // namespace

std::vector<std::string> mistakes_of(const ParamSchedulerConfig& c, const ScheduleUnit& unit) {
  const auto units = [&](auto samples) { return static_cast<double>(samples) / static_cast<double>(unit.num_samples); };
  std::vector<std::string> mistakes;
  const auto rule = [&]<class... Args>(bool kept, fmt::format_string<Args...> text, Args&&... args) {
    if (!kept) mistakes.push_back(fmt::format(text, std::forward<Args>(args)...));
  };
  const bool wsd = c.lr_decay_style == LrDecayStyle::kWsd;
  const bool grows = c.wd_incr_style != WeightDecayIncrStyle::kConstant;
  rule(c.min_lr >= 0, "the lowest learning rate {} (--min-lr) is negative; give 0 or more", c.min_lr);
  rule(c.max_lr >= c.min_lr,
       "the highest learning rate {} (--lr) is below the lowest {} (--min-lr); raise --lr or lower --min-lr", c.max_lr,
       c.min_lr);
  rule(c.init_lr <= c.max_lr,
       "warm-up starts at {} (--lr-warmup-init), above the highest learning rate {} (--lr); lower it", c.init_lr,
       c.max_lr);
  rule(c.lr_decay_steps > 0, "the decay of the learning rate ends at {} {}; it must end later", unit.name,
       units(c.lr_decay_steps));
  rule(c.lr_decay_steps <= 0 || c.lr_warmup_steps < static_cast<double>(c.lr_decay_steps),
       "the warm-up of the learning rate takes {} {}s and its decay ends at {} {}: the warm-up must be shorter; lower "
       "--lr-warmup-* or train longer",
       units(c.lr_warmup_steps), unit.name, unit.name, units(c.lr_decay_steps));
  rule(!wsd || (c.wsd_decay_steps && *c.wsd_decay_steps > 0),
       "--lr-decay-style WSD needs the length of its decay: --lr-wsd-decay-iters, or --lr-wsd-decay-samples with "
       "--train-samples");
  rule(c.start_wd >= 0, "weight decay {} ({}) is negative; give 0 or more", c.start_wd,
       grows ? "--start-weight-decay" : "--weight-decay");
  rule(c.end_wd >= c.start_wd,
       "weight decay ends at {} (--end-weight-decay), below its start {} (--start-weight-decay); it can grow only",
       c.end_wd, c.start_wd);
  rule(grows || c.start_wd == c.end_wd,
       "constant weight decay cannot go from {} to {}; --weight-decay-incr-style linear or cosine can", c.start_wd,
       c.end_wd);
  rule(!grows || c.wd_incr_steps > 0, "weight decay cannot grow over {} {}s", units(c.wd_incr_steps), unit.name);
  rule(!c.override_opt_param_scheduler || !c.use_checkpoint_opt_param_scheduler,
       "--override-opt_param-scheduler and --use-checkpoint-opt_param-scheduler exclude each other: one side's "
       "schedule wins");
  return mistakes;
}

ParamScheduler::ParamScheduler(const ParamSchedulerConfig& config) : config_(config) {
  const std::vector<std::string> mistakes = mistakes_of(config);
  require<ConfigError>(mistakes.empty(), "[ParamScheduler] {}", joined(mistakes, "; "));
}

void ParamScheduler::step(int64_t samples) {
  num_steps_ += samples;
  config_before_load_.reset();
}

double ParamScheduler::lr(const ParamGroupSchedule& group) const {
  const double max_lr = group.max_lr.value_or(config_.max_lr);
  const double min_lr = group.min_lr.value_or(config_.min_lr);
  const double n = static_cast<double>(num_steps_);
  const double warmup = config_.lr_warmup_steps;
  const double end = static_cast<double>(config_.lr_decay_steps);
  if (warmup > 0 && n <= warmup) return config_.init_lr + (max_lr - config_.init_lr) * n / warmup;
  if (config_.lr_decay_style == LrDecayStyle::kConstant) return max_lr;
  if (n > end) return min_lr;
  if (config_.lr_decay_style == LrDecayStyle::kInverseSquareRoot)
    return std::max(min_lr, max_lr * std::sqrt(std::max(warmup, 1.0)) / std::sqrt(std::max(n, 1.0)));
  const double fraction = (n - warmup) / (end - warmup);
  double factor = 1.0;
  if (config_.lr_decay_style == LrDecayStyle::kLinear) factor = 1.0 - fraction;
  if (config_.lr_decay_style == LrDecayStyle::kCosine) factor = 0.5 * (std::cos(kPi * fraction) + 1.0);
  if (config_.lr_decay_style == LrDecayStyle::kWsd) {
    const auto length = static_cast<double>(*config_.wsd_decay_steps);
    if (n > end - length) factor = wsd_factor(config_.lr_wsd_decay_style, (n - (end - length)) / length);
  }
  return min_lr + factor * (max_lr - min_lr);
}

double ParamScheduler::weight_decay(const ParamGroupSchedule& group) const {
  const ParamSchedulerConfig& c = config_before_load_ ? *config_before_load_ : config_;
  const double start = group.start_wd.value_or(c.start_wd);
  const double end = group.end_wd.value_or(c.end_wd);
  if (num_steps_ > c.wd_incr_steps) return end * group.wd_mult;
  if (c.wd_incr_style == WeightDecayIncrStyle::kConstant) {
    require<ConfigError>(start == end, "constant weight decay cannot go from {} to {} in a parameter group", start,
                         end);
    return end * group.wd_mult;
  }
  const double fraction = static_cast<double>(num_steps_) / static_cast<double>(c.wd_incr_steps);
  return (start + weight_decay_factor(c.wd_incr_style, fraction) * (end - start)) * group.wd_mult;
}

ParamSchedulerState ParamScheduler::state() const {
  return {.max_lr = config_.max_lr,
          .lr_warmup_steps = config_.lr_warmup_steps,
          .num_steps = num_steps_,
          .lr_decay_style = config_.lr_decay_style,
          .lr_decay_steps = config_.lr_decay_steps,
          .min_lr = config_.min_lr,
          .start_wd = config_.start_wd,
          .end_wd = config_.end_wd,
          .wd_incr_style = config_.wd_incr_style,
          .wd_incr_steps = config_.wd_incr_steps};
}

void ParamScheduler::load(const ParamSchedulerState& stored) {
  using C = ParamSchedulerConfig;
  Merge merge(config_);
  merge.take("max_lr", &C::max_lr, stored.max_lr);
  merge.take("min_lr", &C::min_lr, stored.min_lr);
  merge.take("lr_warmup_steps", &C::lr_warmup_steps, stored.lr_warmup_steps);
  merge.take("lr_decay_steps", &C::lr_decay_steps, stored.lr_decay_steps);
  merge.take("lr_decay_style", &C::lr_decay_style, stored.lr_decay_style);
  merge.take("start_wd", &C::start_wd, stored.start_wd);
  merge.take("end_wd", &C::end_wd, stored.end_wd);
  merge.take("wd_incr_steps", &C::wd_incr_steps, stored.wd_incr_steps);
  merge.take("wd_incr_style", &C::wd_incr_style, stored.wd_incr_style);
  const ParamSchedulerConfig merged = merge.result();
  config_before_load_ = config_;
  config_ = merged;
  num_steps_ += stored.num_steps;
}

}  // namespace megatron
