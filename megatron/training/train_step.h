// One optimizer step, and evaluation, over micro-batches of the loader.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "megatron/comm/gpu_ranks.h"
#include "megatron/core/context_layouts.h"
#include "megatron/models/model.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/pipeline_parallel/pipeline_schedule.h"
#include "megatron/training/batch_upload.h"
#include "megatron/training/forward_backward_graph.h"
#include "megatron/training/hybrid_context_batches.h"
#include "megatron/training/loss_sum.h"
#include "megatron/training/micro_batches.h"
#include "megatron/training/rerun_state_machine.h"
#include "megatron/training/step_metrics.h"

namespace megatron {

struct TrainStepOptions {
  /// true: every token of the global batch weighs the same, whatever the layout. false: mean of the micro-batches'
  /// means, Megatron's default, which depends on the layout.
  bool calculate_per_token_loss = true;
  bool has_positions = false;  // this and the next: see BatchUploadOptions
  ContextLayoutOptions context = {};
  std::optional<HybridContextOptions> hybrid_context;  // documents get as many ranks as they need
  ScheduleOptions schedule;                            // for any number of micro-batches
  std::optional<int64_t> num_graph_warm_up_steps;      // see ForwardBackwardGraph
};

/// Looks at what a step has computed, with the reasons why it may be computed again. See RerunStateMachine.
struct StepExamination {
  bool before_update = false;  // always; else only where the optimizer found that it cannot step
  std::function<bool(const StepValues&)> wants_again;
};

inline constexpr std::string_view kNumValidTokens = "valid tokens";

struct TrainStepResult {
  LossSum loss;  // of the global batch: the sum of the model's losses
  /// Sums of Model::losses(), Model::metrics() and kNumValidTokens, of all ranks together.
  std::vector<StepMetric> metrics;
  int64_t num_micro_batches = 0;  // of all data-parallel ranks together
  StepResult optimizer;
  std::optional<double> max_attention_logit;  // of all layers and heads, if the step has found it
  bool was_repeated = false;                  // without bounds, because rows overflowed (Model::set_bounded)
};

/// Forward and backward of this rank's micro-batches, the sum of gradients over data-parallel ranks, then the
/// optimizer. All ranks call the same. Refers to what it is given.
class TrainStep {
 public:
  TrainStep(const Context& ctx, const Model& model, DistributedDataParallel& ddp, Optimizer& optimizer,
            GpuRanks* gpu_ranks, const TrainStepOptions& options);

  /// @param batches  of this data-parallel rank, whole for each of its context-parallel ranks. @param iteration  from
  /// 0: part of every dropout counter.
  /// @param timers   level 1: forward-backward and, in it, all-grads-sync, non-tensor-parallel-grads-all-reduce,
  ///                 embedding-grads-all-reduce; optimizer. May be null. See also Optimizer::step and ExecutorOptions.
  /// @param examination  throws to end the step before it changes the model. May be null.
  /// A step in which rows overflowed a bounded tensor is computed again without bounds, before it changes anything.
  TrainStepResult run(const MicroBatches& batches, const ParamScheduler& scheduler, int64_t iteration, Timers* timers,
                      const StepExamination* examination = nullptr);
  /// Losses without gradients; dropout is off. Waits for the device once. @return of this rank alone: see
  /// sum_of_all_ranks.
  LossSum evaluate(const MicroBatches& batches);

  const ForwardBackwardGraph& graph() const { return graph_; }

 private:
  /// Which part of the loss a micro-batch weighs, before the seed gradient.
  double loss_weight(const HostBatch& batch, size_t num_batches) const;
  const Schedule& schedule_of(size_t num_micro_batches, bool forward_only);
  /// Writes the values of the step that kernels read, and sums the valid tokens of all data-parallel ranks.
  void write_step_state(const ParamScheduler& scheduler, int64_t iteration, int64_t own_tokens, StepMetrics& metrics);
  std::vector<MetricSpec> metric_specs() const;
  /// Losses of micro-batches that are on their way to the host.
  struct PendingLosses {
    Tensor on_device;             // [losses of the model * slots] fp64, one loss after the other
    std::vector<double> values;   // here, after the wait
    std::vector<double> weights;  // of each slot: see BatchUploadOptions
    double sum() const;
  };
  /// Micro-batches in device memory, and where their losses go. Each has a slot. Where their number and their sizes
  /// follow from the documents, they are there one at a time and share one slot, so that memory does not depend on
  /// either.
  struct Uploaded {
    std::vector<Batch> batches;
    PendingLosses losses;
    std::function<Batch(size_t)> upload;  // where they come one at a time
    int current = -1;

    const Batch& at(int micro_batch);
  };
  Tensor attached_loss_scale(size_t num_batches) const;
  ContextBatches own_batches(const MicroBatches& whole) const;
  /// With the accumulators of the model's own metrics. @param places  see ContextBatches. Refers to both.
  Uploaded upload_all(const MicroBatches& batches, std::span<const BatchPlace> places, bool forward_only,
                      const StepMetrics& metrics);
  BatchUploadOptions upload_options(const BatchPlace* place, int64_t first_sample, double loss_weight) const;
  PendingLosses forward_backward(const ContextBatches& own, int64_t iteration, const StepMetrics& metrics,
                                 Timers* timers);
  void execute(Uploaded& uploaded, bool forward_only, Timers* timers);
  /// Losses of a forward and backward pass, of this rank's micro-batches and of all ranks together.
  struct Computed {
    StepMetrics metrics;
    PendingLosses own;
  };
  Computed compute(const ContextBatches& batches, const ParamScheduler& scheduler, int64_t iteration, Timers* timers);
  /// The optimizer's part of a computed step, and what the host reads. @param num_batches  of this rank
  TrainStepResult update(Computed& computed, size_t num_batches, Timers* timers);
  /// QK-clip, if the step has found the largest logits of attention.
  void clip_qk(TrainStepResult& result);
  /// Waits for the device.
  StepValues values_of(Computed& computed);
  LossSum loss_of(const std::vector<StepMetric>& metrics) const;
  /// Sums of losses over all ranks, as sum_of_all_ranks has them, in device memory.
  void add_up_losses(const PendingLosses& losses, const StepMetrics& metrics) const;

  Context ctx_;
  const Model& model_;
  std::vector<std::string> losses_;  // of the model
  DistributedDataParallel& ddp_;
  const ProcessGroupCollection& groups_;
  Optimizer& optimizer_;
  GpuRanks* gpu_ranks_;
  TrainStepOptions options_;
  ForwardBackwardGraph graph_;
  std::map<std::pair<size_t, bool>, Schedule> schedules_;  // of this rank, by micro-batches and forward only
};

}  // namespace megatron
