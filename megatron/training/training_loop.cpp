#include "megatron/training/training_loop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "megatron/base/word_list.h"
#include "megatron/comm/texts.h"
#include "megatron/comm/world.h"
#include "megatron/telemetry/run_messages.h"
#include "megatron/training/config/schedules.h"
#include "megatron/training/rejected_result.h"
#include "megatron/training/rejected_steps.h"
#include "megatron/training/weight_hash.h"

namespace megatron {
namespace {

WallTime now() { return std::chrono::system_clock::now(); }

/// @param iteration  that of the checkpoint
std::string nothing_to_train_text(const TrainingConfig& training, int64_t iteration) {
  const std::string length = training.train_samples ? fmt::format("--train-samples {}", *training.train_samples)
                                                    : fmt::format("--train-iters {}", *training.train_iters);
  return fmt::format(
      "There is nothing left to train: the checkpoint is of iteration {}, and with {} the run ends at iteration {}. To "
      "go on, give a larger {}, and either --override-opt_param-scheduler, for the learning-rate schedule of the "
      "flags, "
      "or --use-checkpoint-opt_param-scheduler, for that of the checkpoint.",
      iteration, length, *training.train_iters, training.train_samples ? "--train-samples" : "--train-iters");
}

}  // namespace

TrainingLoop::TrainingLoop(Trainer& trainer, const TrainingData& data, Checkpointer& checkpointer,
                           const PretrainEnvironment& environment, World* world, Timers& timers)
    : trainer_(trainer),
      config_(trainer.config()),
      plan_(config_),
      data_(data),
      checkpointer_(checkpointer),
      environment_(environment),
      world_(world),
      timers_(timers),
      recent_speed_(config_, environment.speed),
      reporter_(config_,
                {.files = environment.files,
                 .progress = environment.progress,
                 .straggler_switch = environment.straggler_switch,
                 .is_writer = trainer.groups().world.rank() == 0,
                 .host = environment.host,
                 .process_id = environment.process_id,
                 .speed = &recent_speed_.best()},
                timers_),
      profile_(trainer, environment.files,
               {.on_info = [this](const std::string& line) { reporter_.info(line); },
                .on_warning = [this](const std::string& text) { reporter_.warning(text); }}),
      batch_sizes_(microbatch_calculator_of(config_)),
      earlier_rejected_step_(environment.files, config_.checkpoint.load ? &*config_.checkpoint.load : nullptr,
                             trainer.groups().world),
      reruns_(rerun_options()),
      family_batches_(config_.family),
      operations_at_start_(trainer.progress().num_floating_point_operations) {
  if (!config_.logging.log_progress || !config_.checkpoint.save || trainer.groups().world.rank() > 0) return;
  progress_log_.emplace(environment.files, *config_.checkpoint.save, environment.job_id,
                        static_cast<int>(config_.parallel.world_size));
  progress_log_->job_started(now());
}

void TrainingLoop::print_setup(std::initializer_list<std::string_view> timers) {
  reporter_.info("done with setup ...");
  reporter_.print_timers(trainer_, std::span(timers.begin(), timers.size()));
}

bool TrainingLoop::train() {
  const int64_t train_iters = config_.training.train_iters.value(), start = trainer_.progress().iteration;
  if (start >= train_iters) {
    environment_.progress.message(nothing_to_train_text(config_.training, start));
    return true;
  }
  train_reader_ = data_.train_reader(trainer_.groups().dp.rank(), trainer_.progress().consumed_train_samples);
  environment_.progress.begin({.title = "training", .unit = "it", .total = train_iters, .start = start});
  bool goes_on = true;
  if (config_.faults.check_weight_hash_across_dp_replicas_interval) check_replicas();
  while (goes_on && trainer_.progress().iteration < train_iters) {
    finish_save(Wait::kNo);
    if (trainer_.progress().iteration == start + 1) set_timeout_after_init();
    profile_.begin_step();
    if (!train_iteration()) continue;
    const int64_t iteration = trainer_.progress().iteration;
    if (plan_.validates_after(iteration)) validate(fmt::format("iteration {}", iteration));
    const auto& hash_interval = config_.faults.check_weight_hash_across_dp_replicas_interval;
    if (hash_interval && iteration % *hash_interval == 0) check_replicas();
    if (const std::string text = reruns_.statistics(); !text.empty() && iteration % config_.logging.log_interval == 0)
      reporter_.info(text);
    goes_on = !exits_after_iteration();
    profile_.end_step();
  }
  profile_.finish();
  environment_.progress.end();
  if (goes_on && config_.checkpoint.save && checkpointer_.last_saved_iteration() != trainer_.progress().iteration)
    save(true);
  finish_save(Wait::kYes);
  return goes_on;
}

/// The first iteration takes longer than others, so all must have left it behind.
void TrainingLoop::set_timeout_after_init() {
  const auto& seconds = config_.parallel.distributed_timeout_seconds_after_init;
  if (!world_ || !seconds) return;
  trainer_.groups().world.barrier({.site = "end of first iteration"}).wait();
  world_->set_timeout(std::chrono::seconds(*seconds));
}

bool TrainingLoop::train_iteration() {
  const ProfiledRange step = range("step");
  const BatchSize batch = batch_sizes_.at(trainer_.progress().consumed_train_samples);
  change_batch_size(batch);
  if (plan_.skips(trainer_.progress().iteration + 1)) {
    skip_iteration(batch);
    return false;
  }
  const Clock::time_point begin = Clock::now();
  const MicroBatches batches = timed(&timers_, "batch-generator", 2, [&] {
    const ProfiledRange reading = range("read batch");
    return family_batches_.of(train_reader_->read(batch.num_microbatches));
  });
  reporter_.add_data_wait(std::chrono::duration<double>(Clock::now() - begin).count());
  const TrainStepResult result = train_step(batches);
  recent_speed_.add(batch.running_batch_size, std::chrono::duration<double>(Clock::now() - begin).count());
  if (const std::string text = recent_speed_.drop_exceeded_ceiling(environment_.files); !text.empty())
    reporter_.warning(text);
  if (trainer_.graph().num_launches() == 1 && !std::exchange(graph_launch_logged_, true))
    reporter_.info(fmt::format("from iteration {} on, forward and backward are one CUDA graph of {} nodes",
                               trainer_.progress().iteration, trainer_.graph().num_nodes()));
  require<InternalError>(!result.optimizer.overflow,
                         "[training] iteration {}: more rows than the capacity of a tensor that is bounded on the "
                         "device, so gradients lack some. The weights are those of before this step.",
                         trainer_.progress().iteration);
  const bool is_finite = std::isfinite(result.loss.sum) && std::isfinite(result.optimizer.grad_norm);
  require<Error>(is_finite || !config_.training.check_for_nan_in_loss_and_grad || !result.optimizer.success,
                 "[training] iteration {}: loss {}, gradient norm {}. The last checkpoint is from before this step. "
                 "Lower --lr, look at the data around sample {}, or go on with --no-check-for-nan-in-loss-and-grad.",
                 trainer_.progress().iteration, result.loss.mean(), result.optimizer.grad_norm,
                 trainer_.progress().consumed_train_samples);
  earlier_rejected_step_.pass(trainer_.progress().iteration);
  reporter_.step(trainer_, result, batch.running_batch_size);
  if (environment_.on_step) environment_.on_step(trainer_, result);
  const std::string speed = recent_speed_.text();
  environment_.progress.update(trainer_.progress().iteration,
                               fmt::format("lm loss {:.3f}{}{}", result.loss.mean(), speed.empty() ? "" : ", ", speed));
  return true;
}

RerunStateMachine::Options TrainingLoop::rerun_options() {
  const ProcessGroup& world = trainer_.groups().world;
  const int64_t iteration = trainer_.progress().iteration + 1;
  const bool compares = config_.faults.rerun_mode != RerunMode::kDisabled;
  earlier_rejected_step_.pass(iteration - 1);
  if (const std::string note = earlier_rejected_step_.note_at_start(iteration); compares && !note.empty())
    reporter_.warning(note);
  const std::string gpu = environment_.device ? environment_.device->pci_bus_id : "";
  const std::string own_place = gpu.empty() ? environment_.host : environment_.host + " " + gpu;
  std::vector<std::string> places = gather_texts(world, own_place, "places of ranks");
  std::ranges::sort(places);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return {.faults = config_.faults,
          .check_for_nan = config_.training.check_for_nan_in_loss_and_grad,
          .seed = config_.training.seed,
          .places = joined(places, ", "),
          .rejected = compares ? earlier_rejected_step_.at_start(iteration) : std::nullopt,
          .rejected_path = earlier_rejected_step_.path(),
          .can_restart = config_.checkpoint.save.has_value(),
          .log = {.on_info = {}, .on_warning = [this](const std::string& text) { reporter_.warning(text); }},
          .gather = [&world](double own) { return gather_numbers(world, own, "rejected result"); },
          .on_rejected =
              [this](int64_t iteration) {
                const auto& tracker = config_.faults.result_rejected_tracker_filename;
                if (tracker && trainer_.groups().world.rank() == 0)
                  append_rejected_iteration(environment_.files, *tracker, iteration);
              }};
}

/// A result that was the same twice leaves a checkpoint of what was before it, from which another host computes it.
TrainStepResult TrainingLoop::train_step(const MicroBatches& batches) try {
  reruns_.begin_step(trainer_.progress().iteration + 1);
  const StepExamination examination{
      .before_update = reruns_.looks_before_update(),
      .wants_again = [&](const StepValues& values) { return reruns_.wants_again(values); }};
  return trainer_.train_step(batches, &timers_, &examination);
} catch (const RejectedResult& rejected) {
  if (rejected.verdict == RejectedResult::Verdict::kRestartToTellApart && config_.checkpoint.save)
    leave_rejected_step();
  const int64_t iteration = trainer_.progress().iteration + 1;
  if (rejected.verdict == RejectedResult::Verdict::kFailed && reruns_.has_rejected(iteration))
    earlier_rejected_step_.pass(iteration);
  throw;
}

void TrainingLoop::leave_rejected_step() {
  if (checkpointer_.last_saved_iteration() != trainer_.progress().iteration) save(true);
  finish_save(Wait::kYes);
  if (trainer_.groups().world.rank() == 0)
    write_rejected_step(environment_.files, rejected_step_path(*config_.checkpoint.save), reruns_.rejected().value());
}

void TrainingLoop::check_replicas() {
  const auto pause = reporter_.pause_interval();
  require_equal_replicas(trainer_);
  reporter_.info(fmt::format(">>> Weight hashes match after {} iterations...", trainer_.progress().iteration));
}

/// Takes a batch and drops it; the schedule stands still.
void TrainingLoop::skip_iteration(const BatchSize& batch) {
  train_reader_->read(batch.num_microbatches);
  TrainingProgress& progress = trainer_.progress();
  ++progress.iteration;
  progress.consumed_train_samples += batch.running_batch_size;
  progress.skipped_train_samples += batch.running_batch_size;
  earlier_rejected_step_.pass(progress.iteration);
}

/// A batch size that changes between steps is a place to come back to.
void TrainingLoop::change_batch_size(const BatchSize& batch) {
  const bool has_changed = num_micro_batches_ && *num_micro_batches_ != batch.num_microbatches;
  num_micro_batches_ = batch.num_microbatches;
  if (!has_changed) return;
  reporter_.info(
      fmt::format("global batch size is now {} ({} micro-batches)", batch.running_batch_size, batch.num_microbatches));
  if (config_.checkpoint.save) save(true);
}

int64_t TrainingLoop::num_batches_of(const Dataset* dataset, const BatchSize& batch) const {
  if (!config_.validation.full_validation) return config_.validation.eval_iters;
  return (dataset->size() + batch.running_batch_size - 1) / batch.running_batch_size;
}

/// The loss over all ranks. All check exit conditions equally often: at the end of a whole set some may have no
/// samples left. @return nullopt if an exit condition ended it
std::optional<LossSum> TrainingLoop::evaluate(BatchReader& reader, const Dataset* dataset) {
  const BatchSize batch = eval_microbatch_calculator_of(config_).at(0);
  const int64_t num_batches = num_batches_of(dataset, batch);
  trainer_.finish_param_sync();  // a whole set may have no samples for some ranks
  LossSum total{.of_each = std::vector<double>(trainer_.model().losses().size())};
  for (int64_t i = 0; i < num_batches; ++i) {
    if (exit_line(exit_signs())) return std::nullopt;
    const auto batches = config_.validation.full_validation ? reader.read_at_most(batch.num_microbatches)
                                                            : reader.read(batch.num_microbatches);
    if (batches.empty()) continue;
    const LossSum loss = trainer_.evaluate(family_batches_.of(batches));
    std::ranges::transform(total.of_each, loss.of_each, total.of_each.begin(), std::plus<>());
    total.num_tokens += loss.num_tokens;
  }
  return sum_of_all_ranks(total, trainer_.groups());
}

std::optional<LossSum> TrainingLoop::timed_evaluate(BatchReader& reader, const Dataset* dataset) {
  auto loss = timed(&timers_, "evaluate", 0, [&] { return evaluate(reader, dataset); });
  if (loss) reporter_.print_timers(trainer_, std::array<std::string_view, 1>{"evaluate"});
  return loss;
}

bool TrainingLoop::validate(const std::string& prefix) {
  const auto pause = reporter_.pause_interval();
  const ProfiledRange evaluating = range("evaluate");
  const size_t num_sets = data_.num_validation_sets();
  const int64_t dp_rank = trainer_.groups().dp.rank();
  bool is_complete = true;
  for (size_t set = 0; set < num_sets && is_complete; ++set) {
    const auto reader = config_.validation.full_validation
                            ? data_.full_validation_reader(set, dp_rank)
                            : data_.validation_reader(set, dp_rank, trainer_.progress().consumed_valid_samples);
    const auto& names = config_.validation.validation_set_names;
    const std::string suffix = num_sets == 1 ? "" : "-" + (set < names.size() ? names[set] : std::to_string(set));
    const auto loss =
        timed_evaluate(*reader, set < data_.datasets().valid.size() ? data_.datasets().valid[set].get() : nullptr);
    if (loss) reporter_.validation(trainer_, suffix, prefix, *loss);
    is_complete = loss.has_value();
  }
  // Also of an evaluation that was cut short: later ones take the samples that they would have taken.
  if (!config_.validation.full_validation)
    trainer_.progress().consumed_valid_samples +=
        config_.validation.eval_iters * config_.validation.eval_global_batch_size.value();
  return is_complete;
}

bool TrainingLoop::test(const std::string& prefix) {
  const auto reader = data_.test_reader(trainer_.groups().dp.rank());
  const auto loss = timed_evaluate(*reader, data_.datasets().test.get());
  if (loss) reporter_.test(trainer_, prefix, *loss);
  return loss.has_value();
}

void TrainingLoop::evaluate_at_the_end() {
  const std::string prefix = fmt::format("iteration {}", trainer_.progress().iteration);
  const bool is_complete = (data_.num_validation_sets() == 0 || validate(prefix + " on validation set")) &&
                           (!data_.has_test() || test(prefix + " on test set"));
  if (is_complete) return;
  if (const auto line = exit_line(exit_signs())) reporter_.message(*line);
}

void TrainingLoop::save(bool is_persistent) {
  const auto pause = reporter_.pause_interval();
  const ProfiledRange saving = range("save checkpoint");
  const std::vector<SavedCheckpoint> committed = timed(&timers_, "save-checkpoint", 0, [&] {
    return is_persistent ? checkpointer_.save(trainer_) : checkpointer_.save_non_persistent(trainer_);
  });
  reporter_.print_timers(trainer_, std::array<std::string_view, 1>{"save-checkpoint"});
  for (const SavedCheckpoint& saved : committed) log_saved(saved);
  if (config_.checkpoint.async_save && (is_persistent || !config_.checkpoint.is_local()))
    log_progress([&](ProgressLog& log) { log.async_save_started(now(), checkpoint_progress()); });
}

void TrainingLoop::finish_save(Wait wait) {
  if (!checkpointer_.has_pending_save()) return;
  const auto pause = reporter_.pause_interval();
  const ProfiledRange finishing = range("finish checkpoint");
  if (const auto saved = checkpointer_.finish_save(trainer_.groups().world, wait)) log_saved(*saved);
}

void TrainingLoop::log_saved(const SavedCheckpoint& saved) {
  log_progress([&](ProgressLog& log) {
    for (const int64_t iteration : saved.removed) log.checkpoint_deleted(now(), iteration);
    if (saved.in_background)
      log.async_save_finished(now(), saved.iteration);
    else
      log.checkpoint_saved(now(), checkpoint_progress());
  });
}

CheckpointProgress TrainingLoop::checkpoint_progress() const {
  const TrainingProgress& progress = trainer_.progress();
  return {.iteration = progress.iteration,
          .flops = progress.num_floating_point_operations,
          .flops_at_job_start = operations_at_start_,
          .job_seconds = 60 * minutes_since_start(),
          .tokens = static_cast<double>(progress.consumed_train_samples * config_.model.seq_length.value())};
}

/// The file must never stop a run.
template <class Append>
void TrainingLoop::log_progress(Append append) try {
  if (progress_log_) append(*progress_log_);
} catch (const IoError& error) {
  progress_log_.reset();
  reporter_.warn_of_given_up("--log-progress", error);
}

bool TrainingLoop::exits_after_iteration() {
  const int64_t iteration = trainer_.progress().iteration;
  const ExitSigns signs = exit_signs();
  bool is_saved = false;
  const auto save_once = [&] {
    if (config_.checkpoint.save && !std::exchange(is_saved, true)) save(true);
  };
  if (plan_.saves_after(iteration)) save_once();
  if (plan_.saves_non_persistent_after(iteration)) save(false);
  if (const auto line = exit_line(signs)) {
    save_once();
    reporter_.message(*line);
    return true;
  }
  if (plan_.exits_after(iteration)) {
    save_once();
    reporter_.message(exit_at_iteration_line(iteration, now()));
    return true;
  }
  return false;
}

TrainingLoop::ExitSigns TrainingLoop::exit_signs() const {
  const TrainingConfig& training = config_.training;
  if (!training.exit_signal_handler && !training.exit_duration_in_mins) return {};
  const bool has_signal = training.exit_signal_handler && environment_.signal.load() != 0;
  std::array<double, 2> signs = {has_signal ? 1.0 : 0.0, minutes_since_start()};
  trainer_.groups()
      .world.all_reduce({signs.data(), DType::kFloat64, {2}, {1}}, ReduceOp::kMax, {.site = "exit conditions"})
      .wait();
  const auto& minutes = training.exit_duration_in_mins;
  return {.has_signal = signs[0] > 0,
          .minutes = signs[1],
          .is_time_over = minutes && signs[1] > static_cast<double>(*minutes)};
}

std::optional<std::string> TrainingLoop::exit_line(const ExitSigns& signs) const {
  if (signs.has_signal) return exit_after_signal_line(environment_.signal_name, now());
  if (signs.is_time_over) return exit_after_minutes_line(signs.minutes, now());
  return std::nullopt;
}

double TrainingLoop::minutes_since_start() const {
  return std::chrono::duration<double>(Clock::now() - start_).count() / 60;
}

}  // namespace megatron
