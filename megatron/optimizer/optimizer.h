// Adam or SGD with fp32 master weights, clipping and loss scale, on whole parameters or on this rank's shards of them.
// Megatron Core: core/optimizer/optimizer.py, distrib_optimizer.py.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "megatron/autograd/scaled_rows.h"
#include "megatron/core/readback.h"
#include "megatron/core/timers.h"
#include "megatron/distributed/distributed_data_parallel.h"
#include "megatron/kernels/optimizer_ranges.h"
#include "megatron/optimizer/global_norm.h"
#include "megatron/optimizer/grad_scaler.h"
#include "megatron/optimizer/host_step.h"
#include "megatron/optimizer/optimizer_config.h"
#include "megatron/optimizer/optimizer_state.h"
#include "megatron/optimizer/param_scheduler.h"

namespace megatron {

struct StepResult {
  bool success = true;    // false: gradients are not finite or there was an overflow, and nothing was changed
  bool overflow = false;  // on any rank a bounded extent was too small (StepState::overflow): its rows are missing
  double grad_norm = 0;   // before clipping, without loss scale; of gradients that are not finite, not finite
  std::optional<int64_t> num_zeros;  // --log-num-zeros-in-grad
};

/// One step formula for both forms: a rank steps the ranges that DistributedDataParallel::owned_ranges() lists, which
/// without the distributed optimizer are whole parameters. All ranks make the same calls; norm, overflow and loss scale
/// are those of all ranks.
class Optimizer {
 public:
  /// Master weights are copies of the weights as they are now. Refers to `ddp`, which says what this rank owns.
  Optimizer(const Context& ctx, const OptimizerConfig& config, DistributedDataParallel& ddp);

  /// Before the first forward of a step: puts the rates of `scheduler` on the device, and into `state` what kernels are
  /// to know of the step (the caller puts it there, architecture D3).
  /// @param loss_seed  gradient that enters the loss: loss_scale() / number of valid tokens of the global batch, unless
  ///                   the losses are divided by that number themselves.
  void begin_step(const Context& ctx, const ParamScheduler& scheduler, double loss_seed, StepState& state);
  /// After DistributedDataParallel::finish_grad_sync(): adds to `readback` what step() would give as the norm, without
  /// a step. @param norms  largest absolute value and norm; live until the readback's wait
  void add_norms(const Context& ctx, Readback& readback, std::span<double> norms);
  /// After DistributedDataParallel::finish_grad_sync(): steps all parameters and gathers the weights. The counter of
  /// the scheduler is left to the caller, who advances it on success.
  /// @param readback  what else the host wants of this step: all arrives with the one wait in here.
  /// @param timers    level 1: optimizer-clip-main-grad (norm, search for infinities, zeros: one pass),
  ///                  optimizer-inner-step (which scales, clips and rounds to the weights), params-all-gather. May be
  ///                  null.
  /// @throw InternalError without a begin_step before it.
  StepResult step(const Context& ctx, Readback& readback, Timers* timers = nullptr);
  /// L2 norm of all weights of the model (main parameters where they are kept whole).
  double params_norm(const Context& ctx);
  /// The factor of the loss before backward: 1 without fp16.
  double loss_scale() const { return scaler_ ? scaler_->scale() : 1.0; }
  /// Master weights become copies of the weights again: after a load of weights alone.
  void reload_main_params(const Context& ctx);
  /// Weights become roundings of the master weights: after a load of optimizer state.
  void copy_main_to_model_params(const Context& ctx);

  /// Multiplies rows of weights and of their main parameters; weights become roundings of these. All data-parallel
  /// ranks call it with the same rows.
  void scale_rows(const Context& ctx, std::span<const ScaledRows> scaled);

  /// The main parameters of one of states(), whole: a copy in fp32 where they are kept in two halves, or in bf16.
  Tensor main_params(const Context& ctx, const OptimizerState& state) const;
  /// Makes `main`, of the shape of main_params(), the main parameters of a state that has a remainder.
  void set_main_params(const Context& ctx, const OptimizerState& state, const Tensor& main);

  /// The states that this rank owns, in order of registration: a checkpoint is the union over ranks.
  const std::vector<OptimizerState>& states() const { return states_; }
  const std::vector<ParamGroup>& groups() const { return groups_; }
  /// Steps that were not skipped: Adam's t.
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }
  GradScaler* scaler() { return scaler_.get(); }
  const OptimizerConfig& config() const { return config_; }

 private:
  /// Ranges whose operands have the same dtypes: one launch steps them.
  struct RangeTable {
    kernels::OptimizerRanges ranges;
    Tensor memory;
  };

  void make_groups();
  void fill_state(const Context& ctx, OptimizerState& state) const;
  void choose_states_on_host();
  void make_tables(const Context& ctx);
  void gather_params();
  void update(const Context& ctx);
  void update_on_device(const Context& ctx);
  bool skips_nonfinite() const { return scaler_ || config_.skips_nonfinite_gradients; }
  void find_norms(const Context& ctx, bool count_zeros);

  OptimizerConfig config_;
  DistributedDataParallel& ddp_;
  std::unique_ptr<GradScaler> scaler_;
  std::vector<OptimizerState> states_;  // in registration order
  std::vector<ParamGroup> groups_;
  Tensor learning_rates_;                              // [groups] fp64, of the step
  std::vector<RangeTable> tables_;                     // of states_; weights and gradients stay where they are
  std::vector<Tensor> counted_grads_, counted_mains_;  // flat parts that norms of this rank count
  HostStep host_step_;                                 // those that are not in tables_
  std::vector<double> host_learning_rates_;            // of the groups, of the step
  GlobalNorm norm_;
  int64_t num_steps_ = 0;
  bool is_in_step_ = false;  // from begin_step to step
};

}  // namespace megatron
