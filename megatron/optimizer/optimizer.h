// Adam or SGD with fp32 master weights, clipping and loss scale. Megatron Core: core/optimizer/optimizer.py.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "megatron/distributed/param_and_grad_buffer.h"
#include "megatron/optimizer/grad_scaler.h"
#include "megatron/optimizer/optimizer_config.h"
#include "megatron/optimizer/param_scheduler.h"

namespace megatron {

/// Parameters that share learning rate and weight decay. Megatron's groups: those that decay, then those that do not
/// (biases and 1-D weights); each again for a decoupled learning rate, if asked for.
struct ParamGroup {
  ParamGroupSchedule schedule;
  std::vector<size_t> members;  // indices into Optimizer::states()
};

/// What the optimizer keeps of a parameter. `main` is the weight itself where that is fp32 or fp64.
struct OptimizerState {
  Parameter* parameter = nullptr;
  Tensor main;        // fp32 (fp64): what is stepped
  Tensor exp_avg;     // Adam's first moment, SGD's momentum buffer (undefined without momentum)
  Tensor exp_avg_sq;  // Adam's second moment
};

struct StepResult {
  bool success = true;               // false: infinite gradients under a loss scale; nothing was changed
  double grad_norm = 0;              // before clipping, without loss scale
  std::optional<int64_t> num_zeros;  // --log-num-zeros-in-grad
};

class Optimizer {
 public:
  /// Master weights are copies of the weights as they are now.
  Optimizer(const Context& ctx, const OptimizerConfig& config, ParamAndGradBuffer& buffer);

  /// Steps all parameters with the rates of `scheduler`; its counter is left to the caller, who advances it on success.
  StepResult step(const Context& ctx, const ParamScheduler& scheduler);
  /// What the loss is multiplied by before backward: 1 without fp16.
  double loss_scale() const { return scaler_ ? scaler_->scale() : 1.0; }
  /// Master weights become copies of the weights again: after a load of weights alone.
  void reload_main_params(const Context& ctx);
  /// Weights become roundings of the master weights: after a load of optimizer state.
  void copy_main_to_model_params(const Context& ctx);

  const std::vector<OptimizerState>& states() const { return states_; }
  const std::vector<ParamGroup>& groups() const { return groups_; }
  /// Steps that were not skipped: Adam's t.
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }
  GradScaler* scaler() { return scaler_.get(); }
  const OptimizerConfig& config() const { return config_; }

 private:
  void make_groups();
  int64_t num_gradients() const;  // elements, without the gaps of the buffer
  void update(const Context& ctx, const ParamScheduler& scheduler);
  void update_parameter(const Context& ctx, OptimizerState& state, const ParamGroup& group,
                        const double* learning_rate);

  OptimizerConfig config_;
  ParamAndGradBuffer& buffer_;
  std::unique_ptr<GradScaler> scaler_;
  std::vector<OptimizerState> states_;  // in registration order
  std::vector<ParamGroup> groups_;
  Tensor learning_rates_;  // [groups] fp64
  Tensor scalars_;         // [3] fp64: squared norm, norm, zeros
  int64_t num_steps_ = 0;
};

}  // namespace megatron
