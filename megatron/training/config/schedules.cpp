#include "megatron/training/config/schedules.h"

namespace megatron {

std::vector<BatchSizeStep> batch_size_steps_of(const PretrainConfig& config) {
  const TrainingConfig& training = config.training;
  if (training.step_batch_size_schedule)
    return parse_step_batch_size_schedule(*training.step_batch_size_schedule, config.model.seq_length.value());
  const int64_t global_batch_size = training.global_batch_size.value();
  if (training.rampup_batch_size.empty()) return {{0, global_batch_size}};
  const std::vector<int64_t>& ramp = training.rampup_batch_size;
  return ramp_steps({.start = ramp.at(0), .increment = ramp.at(1), .samples = ramp.at(2)}, global_batch_size);
}

std::string_view batch_size_flag(const TrainingConfig& training) {
  if (training.step_batch_size_schedule) return "--step-batch-size-schedule";
  return training.rampup_batch_size.empty() ? "--global-batch-size" : "--rampup-batch-size";
}

MicrobatchCalculator microbatch_calculator_of(const PretrainConfig& config) {
  const TrainingConfig& training = config.training;
  return MicrobatchCalculator({.steps = batch_size_steps_of(config),
                               .micro_batch_size = training.micro_batch_size.value(),
                               .data_parallel_size = config.parallel.data_parallel_size,
                               .decrease_batch_size_if_needed = training.decrease_batch_size_if_needed,
                               .drops_partial_batch = !training.rampup_batch_size.empty()});
}

MicrobatchCalculator eval_microbatch_calculator_of(const PretrainConfig& config) {
  return MicrobatchCalculator({.steps = {{0, config.validation.eval_global_batch_size.value()}},
                               .micro_batch_size = config.validation.eval_micro_batch_size.value(),
                               .data_parallel_size = config.parallel.data_parallel_size,
                               .decrease_batch_size_if_needed = false});
}

namespace {

/// Returns the schedule of a run that takes no step: it needs neither a learning rate nor a length.
ParamSchedulerConfig schedule_without_steps(const PretrainConfig& config) {
  ParamSchedulerConfig schedule;
  schedule.max_lr = schedule.init_lr = schedule.min_lr = config.optimizer.lr.value_or(config.optimizer.min_lr);
  schedule.lr_decay_steps = schedule.wd_incr_steps = 1;
  schedule.start_wd = schedule.end_wd = config.optimizer.weight_decay;
  schedule.override_opt_param_scheduler = true;
  return schedule;
}

}  // namespace

ParamSchedulerConfig param_scheduler_config_of(const PretrainConfig& config) {
  const bool has_length = config.training.train_iters || config.training.train_samples;
  if (config.validation.skip_train && !(config.optimizer.lr && has_length)) return schedule_without_steps(config);
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
