#include "megatron/training/config/schedules.h"

namespace megatron {

MicrobatchCalculator microbatch_calculator_of(const PretrainConfig& config) {
  const TrainingConfig& training = config.training;
  MicrobatchCalculatorConfig calculator{.steps = {},
                                        .micro_batch_size = training.micro_batch_size.value(),
                                        .data_parallel_size = config.parallel.data_parallel_size,
                                        .decrease_batch_size_if_needed = training.decrease_batch_size_if_needed};
  if (training.step_batch_size_schedule)
    calculator.steps =
        parse_step_batch_size_schedule(*training.step_batch_size_schedule, config.model.seq_length.value());
  else
    calculator.steps = {{0, training.global_batch_size.value()}};
  return MicrobatchCalculator(std::move(calculator));
}

MicrobatchCalculator eval_microbatch_calculator_of(const PretrainConfig& config) {
  return MicrobatchCalculator({.steps = {{0, config.validation.eval_global_batch_size.value()}},
                               .micro_batch_size = config.validation.eval_micro_batch_size.value(),
                               .data_parallel_size = config.parallel.data_parallel_size,
                               .decrease_batch_size_if_needed = false});
}

ParamSchedulerConfig param_scheduler_config_of(const PretrainConfig& config) {
  const SchedulerConfig& given = config.scheduler;
  const TrainingConfig& training = config.training;
  const bool in_samples = training.train_samples.has_value();
  const int64_t unit = in_samples ? 1 : training.global_batch_size.value();
  const int64_t length = in_samples ? *training.train_samples : training.train_iters.value();
  const std::optional<int64_t>& decay = in_samples ? given.lr_decay_samples : given.lr_decay_iters;
  const std::optional<int64_t>& wsd_decay = in_samples ? given.lr_wsd_decay_samples : given.lr_wsd_decay_iters;
  const int64_t warmup = in_samples ? given.lr_warmup_samples : given.lr_warmup_iters;

  ParamSchedulerConfig schedule;
  schedule.init_lr = given.lr_warmup_init;
  schedule.max_lr = config.optimizer.lr.value();
  schedule.min_lr = config.optimizer.min_lr;
  schedule.lr_decay_steps = decay.value_or(length) * unit;
  schedule.lr_warmup_steps = given.lr_warmup_fraction
                                 ? *given.lr_warmup_fraction * static_cast<double>(schedule.lr_decay_steps)
                                 : static_cast<double>(warmup * unit);
  schedule.lr_decay_style = given.lr_decay_style;
  if (wsd_decay) schedule.wsd_decay_steps = *wsd_decay * unit;
  schedule.lr_wsd_decay_style = given.lr_wsd_decay_style;
  schedule.start_wd = given.start_weight_decay.value_or(config.optimizer.weight_decay);
  schedule.end_wd = given.end_weight_decay.value_or(config.optimizer.weight_decay);
  schedule.wd_incr_steps = length * unit;
  schedule.wd_incr_style = given.weight_decay_incr_style;
  schedule.override_opt_param_scheduler = given.override_opt_param_scheduler;
  schedule.use_checkpoint_opt_param_scheduler = given.use_checkpoint_opt_param_scheduler;
  return schedule;
}

}  // namespace megatron
