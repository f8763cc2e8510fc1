#include "megatron/training/checkpoint/optimizer_tensors.h"

#include "megatron/dist_checkpointing/megatron_names.h"

namespace megatron {

OptimizerTensor stored_as_is(std::string_view name, const Tensor& tensor) {
  return {name, tensor.dtype(), [tensor] { return tensor; }, {}};
}

std::vector<OptimizerTensor> optimizer_tensors(const Context& ctx, Optimizer& optimizer, const OptimizerState& state) {
  std::vector<OptimizerTensor> named;
  const auto add = [&](std::string_view name, const Tensor& tensor) {
    if (tensor.defined()) named.push_back(stored_as_is(name, tensor));
  };
  if (state.remainder.defined())
    named.push_back({optimizer_state::kMaster, DType::kFloat32,
                     [ctx, &optimizer, state] { return optimizer.main_params(ctx, state); },
                     [ctx, &optimizer, state](const Tensor& x) { optimizer.set_main_params(ctx, state, x); }});
  else if (!state.steps_weights())
    add(optimizer_state::kMaster, state.main);
  const bool is_adam = optimizer.config().optimizer == OptimizerType::kAdam;
  add(is_adam ? optimizer_state::kFirstMoment : optimizer_state::kMomentum, state.exp_avg);
  add(optimizer_state::kSecondMoment, state.exp_avg_sq);
  return named;
}

}  // namespace megatron
