// Rules of batches, duration, schedules and evaluation.
#include <algorithm>

#include "megatron/training/config/rules.h"
#include "megatron/training/config/schedules.h"
#include "megatron/training/training_phases.h"

namespace megatron {
namespace {

void check_training_length(const PretrainConfig& config, Mistakes& mistakes) {
  const TrainingConfig& training = config.training;
  const SchedulerConfig& schedule = config.scheduler;
  if (training.train_iters && training.train_samples)
    mistakes.add({"--train-iters", "--train-samples"},
                 "--train-iters {} and --train-samples {} exclude each other: give one length", *training.train_iters,
                 *training.train_samples);
  if (!training.train_iters && !training.train_samples)
    mistakes.add({"--train-iters", "--train-samples"},
                 "--train-iters or --train-samples is required: how long to train");
  const auto wrong_unit = [&](bool given, std::string_view flag, std::string_view length, std::string_view instead) {
    if (given)
      mistakes.add({flag, length}, "{} does not go with {}: lengths have one unit. Give {}", flag, length, instead);
  };
  if (training.train_iters && !training.train_samples) {
    wrong_unit(schedule.lr_decay_samples.has_value(), "--lr-decay-samples", "--train-iters", "--lr-decay-iters");
    wrong_unit(schedule.lr_warmup_samples != 0, "--lr-warmup-samples", "--train-iters", "--lr-warmup-iters");
    wrong_unit(schedule.lr_wsd_decay_samples.has_value(), "--lr-wsd-decay-samples", "--train-iters",
               "--lr-wsd-decay-iters");
  }
  if (training.train_samples && !training.train_iters) {
    wrong_unit(schedule.lr_decay_iters.has_value(), "--lr-decay-iters", "--train-samples", "--lr-decay-samples");
    wrong_unit(schedule.lr_warmup_iters != 0, "--lr-warmup-iters", "--train-samples", "--lr-warmup-samples");
    wrong_unit(schedule.lr_wsd_decay_iters.has_value(), "--lr-wsd-decay-iters", "--train-samples",
               "--lr-wsd-decay-samples");
  }
  if (schedule.lr_warmup_fraction && (schedule.lr_warmup_iters != 0 || schedule.lr_warmup_samples != 0))
    mistakes.add({"--lr-warmup-fraction", "--lr-warmup-iters", "--lr-warmup-samples"},
                 "--lr-warmup-fraction {} excludes --lr-warmup-iters and --lr-warmup-samples: give the warm-up once",
                 *schedule.lr_warmup_fraction);
}

void check_batch_schedule(const PretrainConfig& config, Mistakes& mistakes) {
  const std::vector<BatchSizeStep> steps =
      parse_step_batch_size_schedule(*config.training.step_batch_size_schedule, *config.model.seq_length);
  for (size_t i = 1; i < steps.size(); ++i)
    if (steps[i].global_batch_size < steps[i - 1].global_batch_size)
      mistakes.add({"--step-batch-size-schedule"},
                   "--step-batch-size-schedule goes down from {} to {}; batches may only grow",
                   steps[i - 1].global_batch_size, steps[i].global_batch_size);
}

// Batch sizes of training; false if they are wrong, so that evaluation's defaults would be too.
bool check_batches(const PretrainConfig& config, Mistakes& mistakes) {
  const TrainingConfig& training = config.training;
  if (training.step_batch_size_schedule && !config.model.seq_length) return false;
  const std::string_view flag = batch_size_flag(training);
  try {
    if (training.step_batch_size_schedule) check_batch_schedule(config, mistakes);
    microbatch_calculator_of(config);
  } catch (const ConfigError& error) {
    mistakes.add({flag, "--micro-batch-size"}, "{}: {}", flag, error.what());
    return false;
  }
  return true;
}

void resolve_evaluation(PretrainConfig& config, bool training_batches_fit, Mistakes& mistakes) {
  ValidationConfig& validation = config.validation;
  const bool inherited = !validation.eval_global_batch_size;
  if (inherited) validation.eval_global_batch_size = config.training.global_batch_size;
  if (!validation.eval_micro_batch_size) validation.eval_micro_batch_size = config.training.micro_batch_size;
  const int64_t pass = *validation.eval_micro_batch_size * config.parallel.data_parallel_size;
  const int64_t batch = *validation.eval_global_batch_size;
  if (batch % pass != 0 && (training_batches_fit || !inherited))
    mistakes.add({"--eval-global-batch-size", "--eval-micro-batch-size", "--global-batch-size", "--micro-batch-size"},
                 "--eval-global-batch-size {} (none given: --global-batch-size) does not divide by "
                 "--eval-micro-batch-size {} * data-parallel size {}; near ones that do are {} and {}",
                 batch, *validation.eval_micro_batch_size, config.parallel.data_parallel_size,
                 std::max(pass, batch / pass * pass), std::max(pass, batch / pass * pass) + pass);
  if (validation.multiple_validation_sets && !validation.full_validation)
    mistakes.add({"--multiple-validation-sets", "--full-validation"},
                 "--multiple-validation-sets needs --full-validation");
  if (validation.full_validation && config.data.mock_data)
    mistakes.add({"--full-validation", "--mock-data"},
                 "--full-validation with --mock-data would never end: made-up data have no size. Give --eval-iters "
                 "instead");
}

void resolve_weight_decay(PretrainConfig& config, Mistakes& mistakes) {
  SchedulerConfig& schedule = config.scheduler;
  const bool constant = schedule.weight_decay_incr_style == WeightDecayIncrStyle::kConstant;
  if (constant && (schedule.start_weight_decay || schedule.end_weight_decay))
    mistakes.add({"--start-weight-decay", "--end-weight-decay", "--weight-decay-incr-style"},
                 "--start-weight-decay and --end-weight-decay go with --weight-decay-incr-style linear or cosine; "
                 "constant weight decay is --weight-decay");
  if (!constant && (!schedule.start_weight_decay || !schedule.end_weight_decay))
    mistakes.add({"--start-weight-decay", "--end-weight-decay", "--weight-decay-incr-style"},
                 "--weight-decay-incr-style linear and cosine need both --start-weight-decay and --end-weight-decay");
  if (constant) schedule.start_weight_decay = schedule.end_weight_decay = config.optimizer.weight_decay;
}

void check_phases(const TrainingConfig& training, Mistakes& mistakes) {
  constexpr std::string_view kFlag = "--phase-transition-iterations";
  if (!training.phase_transition_iterations) return;
  const auto reject = [&](bool given, std::string_view flag, std::string_view reason) {
    if (given) mistakes.add({kFlag, flag}, "{} with {}: {}", kFlag, flag, reason);
  };
  constexpr std::string_view kFixed = "a phase is a number of batches of one size. Leave one of them out";
  reject(training.step_batch_size_schedule.has_value(), "--step-batch-size-schedule", kFixed);
  reject(!training.rampup_batch_size.empty(), "--rampup-batch-size", kFixed);
  reject(training.decrease_batch_size_if_needed, "--decrease-batch-size-if-needed", kFixed);
  try {
    const std::vector<int64_t> transitions = phase_transitions_of(training);
    for (const int64_t iteration : training.iterations_to_skip)
      reject(std::ranges::find(transitions, iteration) != transitions.end(), "--iterations-to-skip",
             "an iteration that is skipped does not end a phase. Skip another one");
  } catch (const ConfigError& error) {
    mistakes.add({kFlag}, "{}", error.what());
  }
}

}  // namespace

void resolve_batches(PretrainConfig& config, Mistakes& mistakes) {
  TrainingConfig& training = config.training;
  if (!config.validation.skip_train) check_training_length(config, mistakes);
  check_phases(training, mistakes);
  if (training.step_batch_size_schedule && training.global_batch_size)
    mistakes.add({"--step-batch-size-schedule", "--global-batch-size"},
                 "--step-batch-size-schedule and --global-batch-size {} exclude each other: give one batch size",
                 *training.global_batch_size);
  if (training.step_batch_size_schedule && !training.rampup_batch_size.empty())
    mistakes.add({"--step-batch-size-schedule", "--rampup-batch-size"},
                 "--step-batch-size-schedule and --rampup-batch-size exclude each other: give one way for batches to "
                 "grow");
  if (!training.micro_batch_size) {
    mistakes.add({"--micro-batch-size"}, "--micro-batch-size is required");
    return;
  }
  if (!training.global_batch_size)
    training.global_batch_size = *training.micro_batch_size * config.parallel.data_parallel_size;
  const bool fit = check_batches(config, mistakes);
  resolve_evaluation(config, fit, mistakes);
  if (fit && training.train_samples && !training.train_iters)
    training.train_iters = microbatch_calculator_of(config).num_iterations(*training.train_samples);
}

void resolve_schedule(PretrainConfig& config, Mistakes& mistakes) {
  resolve_weight_decay(config, mistakes);
  OptimizerConfig& optimizer = config.optimizer;
  if (config.validation.skip_train) return;
  if (!optimizer.lr) mistakes.add({"--lr"}, "--lr is required: the highest learning rate");
  const bool complete = optimizer.lr && config.training.global_batch_size &&
                        (config.training.train_iters || config.training.train_samples);
  if (!complete) return;
  const ScheduleUnit unit =
      config.training.train_samples ? ScheduleUnit{} : ScheduleUnit{"iteration", *config.training.global_batch_size};
  for (const std::string& text : mistakes_of(param_scheduler_config_of(config), unit))
    mistakes.add(
        {"--lr", "--min-lr", "--lr-warmup-iters", "--lr-warmup-samples", "--lr-warmup-fraction", "--lr-warmup-init",
         "--lr-decay-iters", "--lr-decay-samples", "--weight-decay", "--start-weight-decay", "--end-weight-decay"},
        "{}", text);
  if (optimizer.decoupled_lr && optimizer.decoupled_min_lr.value_or(optimizer.min_lr) > *optimizer.decoupled_lr)
    mistakes.add({"--decoupled-lr", "--decoupled-min-lr", "--min-lr"},
                 "--decoupled-lr {} is below the lowest learning rate {} (--decoupled-min-lr, or --min-lr)",
                 *optimizer.decoupled_lr, optimizer.decoupled_min_lr.value_or(optimizer.min_lr));
}

}  // namespace megatron
