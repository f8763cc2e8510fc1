// The loop over training steps with all that happens between them.
#pragma once

#include <chrono>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "megatron/telemetry/progress_log.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "megatron/training/family_batches.h"
#include "megatron/training/iteration_plan.h"
#include "megatron/training/microbatch_calculator.h"
#include "megatron/training/pretrain_environment.h"
#include "megatron/training/profile/training_profile.h"
#include "megatron/training/rejected_steps.h"
#include "megatron/training/rerun_state_machine.h"
#include "megatron/training/training_data.h"
#include "megatron/training/training_reporter.h"

namespace megatron {

/// One for each rank. Megatron's order of things in an iteration (training.py, train()): step, log, validation,
/// checkpoint, exit conditions.
class TrainingLoop {
 public:
  /// @param world  of the trainer's groups; null if they belong to none
  /// @param timers  that may have run before: of the set-up.
  TrainingLoop(Trainer& trainer, const TrainingData& data, Checkpointer& checkpointer,
               const PretrainEnvironment& environment, World* world, Timers& timers);

  /// How long the set-up took, by its timers.
  void print_setup(std::initializer_list<std::string_view> timers);
  /// Until --train-iters or an exit condition. @return false if an exit condition ended it: no final validation then.
  bool train();
  /// Validation sets one after the other, then the test set. An exit condition ends it.
  void evaluate_at_the_end();

 private:
  using Clock = std::chrono::steady_clock;
  void set_timeout_after_init();
  RerunStateMachine::Options rerun_options();
  TrainStepResult train_step(const MicroBatches& batches);
  void leave_rejected_step();
  void check_replicas();
  bool train_iteration();  // whether it was not one to skip
  void skip_iteration(const BatchSize& batch);
  void change_batch_size(const BatchSize& batch);
  bool validate(const std::string& prefix);  // this and the next: false if an exit condition ended it
  bool test(const std::string& prefix);
  /// @param dataset  null with --dataloader-type external, whose sets have no size
  std::optional<LossSum> evaluate(BatchReader& reader, const Dataset* dataset);
  std::optional<LossSum> timed_evaluate(BatchReader& reader, const Dataset* dataset);
  int64_t num_batches_of(const Dataset* dataset, const BatchSize& batch) const;
  void save(bool is_persistent);
  /// Commits what an asynchronous save has written, once all ranks have; with Wait::kYes waits until it has.
  void finish_save(Wait wait);
  void log_saved(const SavedCheckpoint& saved);
  template <class Append>
  void log_progress(Append append);
  CheckpointProgress checkpoint_progress() const;
  bool exits_after_iteration();
  /// The exit conditions that hold on any rank, so that all ranks do the same.
  struct ExitSigns {
    bool has_signal = false;
    double minutes = 0;  // since the start, of the rank that has run longest
    bool is_time_over = false;
  };
  ExitSigns exit_signs() const;
  /// The log line of the condition that ends the program; nullopt if none does.
  std::optional<std::string> exit_line(const ExitSigns& signs) const;
  double minutes_since_start() const;
  /// A phase of the step, for --profile.
  ProfiledRange range(std::string_view name) { return {trainer_.device().profiler, {.name = name}}; }

  Trainer& trainer_;
  const PretrainConfig& config_;
  const IterationPlan plan_;
  const TrainingData& data_;
  Checkpointer& checkpointer_;
  const PretrainEnvironment& environment_;
  World* world_;
  Timers& timers_;
  RecentSpeed recent_speed_;  // before what reads its DeviceSpeed
  TrainingReporter reporter_;
  TrainingProfile profile_;
  std::optional<ProgressLog> progress_log_;
  MicrobatchCalculator batch_sizes_;
  EarlierRejectedStep earlier_rejected_step_;
  RerunStateMachine reruns_;
  std::unique_ptr<BatchReader> train_reader_;
  FamilyBatches family_batches_;
  Clock::time_point start_ = Clock::now();
  double operations_at_start_ = 0;
  std::optional<int64_t> num_micro_batches_;
  bool graph_launch_logged_ = false;
};

}  // namespace megatron
