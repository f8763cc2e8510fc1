#include "megatron/transformer/moe/moe_step.h"

#include <algorithm>

#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

void accumulate(const Context& ctx, const Tensor& x, Tensor y) {
  launch(ctx, {.name = "moe_metric"},
         [&](auto& stream) { kernels::accumulate(stream, {.x = x.view(), .y = y.view()}); });
}

}  // namespace

std::vector<std::string_view> auxiliary_losses(const MoeConfig& config) {
  std::vector<std::string_view> names;
  for (const LoadBalancingType type :
       {LoadBalancingType::kAuxLoss, LoadBalancingType::kSeqAuxLoss, LoadBalancingType::kGlobalAuxLoss})
    for (const LoadBalancing& balancing : config.load_balancing)
      if (balancing.type == type && balancing.aux_loss_coeff != 0) names.push_back(auxiliary_loss_of(type));
  if (config.z_loss_coeff) names.push_back(kZLoss);
  return names;
}

Tensor step_tensor(std::span<const NamedTensor> step, std::string_view name) {
  const auto place = std::ranges::find(step, name, &NamedTensor::name);
  return place == step.end() ? Tensor() : place->tensor;
}

void add_to_step(const Context& ctx, std::span<const NamedTensor> step, int64_t layer_number, const MoeOutput& output) {
  if (!ctx.is_training() || !ctx.is_first_run()) return;
  for (const AuxiliaryLoss& loss : output.losses)
    if (const Tensor sums = step_tensor(step, loss.name); sums.defined())
      accumulate(ctx, loss.value, sums.slice(0, layer_number - 1, 1));
  const Tensor counts = step_tensor(step, kTokensPerExpert);
  if (!counts.defined() || !output.tokens_per_expert.defined()) return;
  const int64_t e = output.tokens_per_expert.num_elements();
  accumulate(ctx, output.tokens_per_expert.reshape({e}), counts.slice(0, (layer_number - 1) * e, e));
}

}  // namespace megatron
