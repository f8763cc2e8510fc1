// A model with its optimizer and schedule on one device: all that a training run owns beside its data.
#pragma once

#include <memory>

#include "megatron/comm/gpu_ranks.h"
#include "megatron/core/device_step_state.h"
#include "megatron/kernels/cuda/matmul/matmul_choices.h"
#include "megatron/training/config/pretrain_config.h"
#include "megatron/training/train_step.h"

namespace megatron {

/// The progress of a run; a checkpoint keeps it beside tensors and the schedule.
struct TrainingProgress {
  int64_t iteration = 0;  // steps done
  int64_t consumed_train_samples = 0;
  int64_t skipped_train_samples = 0;
  int64_t consumed_valid_samples = 0;
  double num_floating_point_operations = 0;
};

/// One for each rank; all ranks call the same. Two trainers fit in one process: nothing is shared. On the meta device
/// it plans: the same calls, no memory, no time.
class Trainer {
 public:
  struct Options {
    DeviceKind device = DeviceKind::kCpu;
    int num_threads = 1;
    bool record_events = false;
    bool guard = false;  // this and the next: see Device::Options
    DeviceKind meta_of = DeviceKind::kCpu;
    int cuda_device = 0;         // number of the GPU
    int64_t capacity_bytes = 0;  // of each arena; 0: all that its memory has
    /// The ranks of `groups` on a cuda device: they get its stream, and its connections before step 1 (StepPlan).
    GpuRanks* gpu_ranks = nullptr;
    Connections connections = {};
    kernels::MatmulChoices matmul_choices = {};                        // of products on a cuda device
    ProcessGroupCollection groups = ProcessGroupCollection::single();  // of the layout that `config` asks for
  };
  /// Builds this rank's part of the model with initial weights. `config` is resolved, its vocabulary size included.
  /// @throw NotSupported for several ranks on cuda without their GpuRanks.
  Trainer(const PretrainConfig& config, const Options& options);

  /// One step over this data-parallel rank's micro-batches of a global batch. Progress and schedule move on; the
  /// schedule only if the step was not skipped. @param timers  see TrainStep::run.
  /// @param examination  see there; where it throws the trainer is as it was.
  TrainStepResult train_step(const MicroBatches& batches, Timers* timers = nullptr,
                             const StepExamination* examination = nullptr);
  /// @return the loss on this rank alone: see sum_of_all_ranks.
  LossSum evaluate(const MicroBatches& batches) { return step_.evaluate(batches); }
  /// Waits for the collectives on weights. Call it on all ranks before only some of them go on: where a gather is
  /// left to the next step, the first to read a weight begins it, and waits for the others.
  void finish_param_sync() { ddp_.finish_param_sync(); }

  /// L2 norm of all weights (master weights where there are some).
  double params_norm() { return optimizer_.params_norm(ctx_); }

  const Context& context() const { return ctx_; }
  Device& device() { return *device_; }
  const PretrainConfig& config() const { return config_; }
  const ProcessGroupCollection& groups() const { return groups_; }
  const ForwardBackwardGraph& graph() const { return step_.graph(); }
  Model& model() { return *model_; }
  Optimizer& optimizer() { return optimizer_; }
  ParamScheduler& scheduler() { return scheduler_; }
  TrainingProgress& progress() { return progress_; }

 private:
  PretrainConfig config_;
  ProcessGroupCollection groups_;
  std::unique_ptr<Device> device_;
  DeviceStepState step_state_;
  Context ctx_;
  std::unique_ptr<Model> model_;
  DistributedDataParallel ddp_;
  Optimizer optimizer_;
  ParamScheduler scheduler_;
  TrainStep step_;
  TrainingProgress progress_;
};

}  // namespace megatron
