#include "megatron/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "megatron/kernels/adam.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/gradient_statistics.h"
#include "megatron/kernels/sgd.h"

namespace megatron {
namespace {

Tensor flat(const Tensor& x) { return x.reshape({x.num_elements()}); }

bool has_main_copy(DType dtype) { return dtype == DType::kBFloat16 || dtype == DType::kFloat16; }

/// Megatron's rule: biases and 1-D weights do not decay; --apply-wd-to-qk-layernorm exempts the query and key norms.
double weight_decay_multiplier(const Parameter& parameter, const OptimizerConfig& config) {
  const std::string& name = parameter.name();
  const bool is_qk_norm =
      name.find("q_layernorm") != std::string::npos || name.find("k_layernorm") != std::string::npos;
  if (config.apply_wd_to_qk_layernorm && is_qk_norm) return 1;
  return name.ends_with(".bias") || parameter.shape().rank() == 1 ? 0 : 1;
}

}  // namespace

Optimizer::Optimizer(const Context& ctx, const OptimizerConfig& config, ParamAndGradBuffer& buffer)
    : config_(config), buffer_(buffer), scaler_(make_grad_scaler(config)) {
  for (Parameter* parameter : buffer.parameters()) {
    OptimizerState state{.parameter = parameter};
    const auto make = [&](std::string_view suffix) {
      Tensor x = ctx.empty(parameter->name() + std::string(suffix), parameter->shape(), parameter->main_grad().dtype(),
                           MemoryUse::kOptimizer);
      launch(ctx, [&](auto& stream) { kernels::fill(stream, {.y = x.view(), .value = 0}); });
      return x;
    };
    state.main = has_main_copy(parameter->dtype()) ? make(".main") : parameter->value();
    const bool is_adam = config.optimizer == OptimizerType::kAdam;
    if (is_adam || config.sgd_momentum != 0) state.exp_avg = make(".exp_avg");
    if (is_adam) state.exp_avg_sq = make(".exp_avg_sq");
    states_.push_back(std::move(state));
  }
  make_groups();
  learning_rates_ =
      ctx.empty("learning_rates", {static_cast<int64_t>(groups_.size())}, DType::kFloat64, MemoryUse::kOptimizer);
  scalars_ = ctx.empty("gradient_statistics", {3}, DType::kFloat64, MemoryUse::kOptimizer);
  reload_main_params(ctx);
}

void Optimizer::make_groups() {
  std::map<std::array<bool, 2>, ParamGroup> by_kind;  // decoupled rate, no decay: the decaying group comes first
  for (size_t i = 0; i < states_.size(); ++i) {
    const Parameter& parameter = *states_[i].parameter;
    const double wd_mult = weight_decay_multiplier(parameter, config_);
    const bool is_decoupled = config_.decoupled_lr && parameter.options().is_embedding_or_output;
    ParamGroup& group = by_kind[{is_decoupled, wd_mult == 0}];
    group.schedule.wd_mult = wd_mult;
    if (is_decoupled) {
      group.schedule.max_lr = config_.decoupled_lr;
      group.schedule.min_lr = config_.decoupled_min_lr;
    }
    group.members.push_back(i);
  }
  for (auto& [kind, group] : by_kind) groups_.push_back(std::move(group));
}

void Optimizer::reload_main_params(const Context& ctx) {
  for (OptimizerState& state : states_)
    if (has_main_copy(state.parameter->dtype()))
      launch(ctx, [&](auto& stream) {
        kernels::copy(stream, {.x = std::as_const(*state.parameter).value().view(), .y = state.main.view()});
      });
}

void Optimizer::copy_main_to_model_params(const Context& ctx) {
  for (OptimizerState& state : states_)
    if (has_main_copy(state.parameter->dtype()))
      launch(ctx, [&](auto& stream) {
        kernels::copy(stream, {.x = std::as_const(state.main).view(), .y = state.parameter->value().view()});
      });
}

StepResult Optimizer::step(const Context& ctx, const ParamScheduler& scheduler) {
  StepState& step = ctx.step;
  const Tensor& grads = buffer_.grads();
  step.found_inf = 0;
  step.inverse_scale = scaler_ ? scaler_->inverse_scale() : 1.0;
  if (scaler_) {
    launch(ctx, [&](auto& stream) { kernels::check_finite(stream, {.x = grads.view(), .state = &step}); });
    scaler_->update(step.found_inf != 0);
    if (step.found_inf != 0) return {.success = false};
  }
  Tensor workspace = ctx.workspace("gradient_statistics.workspace",
                                   kernels::gradient_statistics_workspace_bytes(grads.num_elements()));
  double* scalars = scalars_.data<double>();
  launch(ctx, [&](auto& stream) {
    kernels::squared_norm(stream, {.x = grads.view(), .result = scalars, .workspace = workspace.view()});
    kernels::clip_factor(
        stream,
        {.squared_norm = scalars, .max_norm = std::max(config_.clip_grad, 0.0), .norm = scalars + 1, .state = &step});
    if (config_.log_num_zeros_in_grad)
      kernels::count_zeros(stream, {.x = grads.view(), .result = scalars + 2, .workspace = workspace.view()});
  });
  update(ctx, scheduler);
  StepResult result;
  launch(ctx, [&](auto&) {
    result.grad_norm = scalars[1];
    const int64_t padding = grads.num_elements() - num_gradients();
    if (config_.log_num_zeros_in_grad) result.num_zeros = static_cast<int64_t>(scalars[2]) - padding;
  });
  return result;
}

void Optimizer::update(const Context& ctx, const ParamScheduler& scheduler) {
  ++num_steps_;
  const auto t = static_cast<double>(num_steps_);
  ctx.step.weight_decay = scheduler.weight_decay();
  ctx.step.bias_correction1 = 1 - std::pow(config_.adam_beta1, t);
  ctx.step.bias_correction2 = 1 - std::pow(config_.adam_beta2, t);
  double* rates = learning_rates_.data<double>();
  for (size_t g = 0; g < groups_.size(); ++g) {
    launch(ctx, [&](auto&) { rates[g] = scheduler.lr(groups_[g].schedule); });
    for (size_t i : groups_[g].members) update_parameter(ctx, states_[i], groups_[g], rates ? rates + g : nullptr);
  }
}

void Optimizer::update_parameter(const Context& ctx, OptimizerState& state, const ParamGroup& group,
                                 const double* learning_rate) {
  Parameter& parameter = *state.parameter;
  Tensor main = flat(state.main), gradient = flat(parameter.main_grad());
  Tensor model = has_main_copy(parameter.dtype()) ? flat(parameter.value()) : Tensor();
  Tensor exp_avg = state.exp_avg.defined() ? flat(state.exp_avg) : Tensor();
  Tensor exp_avg_sq = state.exp_avg_sq.defined() ? flat(state.exp_avg_sq) : Tensor();
  launch(ctx, [&](auto& stream) {
    if (config_.optimizer == OptimizerType::kAdam)
      kernels::adam(stream, {.parameter = main.view(),
                             .gradient = gradient.view(),
                             .first_moment = exp_avg.view(),
                             .second_moment = exp_avg_sq.view(),
                             .model_weight = model.view(),
                             .beta1 = config_.adam_beta1,
                             .beta2 = config_.adam_beta2,
                             .epsilon = config_.adam_eps,
                             .weight_decay_multiplier = group.schedule.wd_mult,
                             .learning_rate = learning_rate,
                             .state = &ctx.step});
    else
      kernels::sgd(stream, {.parameter = main.view(),
                            .gradient = gradient.view(),
                            .momentum_buffer = exp_avg.view(),
                            .model_weight = model.view(),
                            .momentum = config_.sgd_momentum,
                            .weight_decay_multiplier = group.schedule.wd_mult,
                            .learning_rate = learning_rate,
                            .state = &ctx.step});
  });
}

int64_t Optimizer::num_gradients() const {
  int64_t sum = 0;
  for (const OptimizerState& state : states_) sum += state.parameter->shape().num_elements();
  return sum;
}

}  // namespace megatron
