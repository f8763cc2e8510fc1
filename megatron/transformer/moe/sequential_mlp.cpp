#include "megatron/transformer/moe/sequential_mlp.h"

#include <optional>

#include "megatron/kernels/elementwise.h"
#include "megatron/ops/add.h"
#include "megatron/ops/grouped_linear.h"
#include "megatron/ops/linear.h"
#include "megatron/ops/permute.h"
#include "megatron/ops/weighted_rows.h"
#include "megatron/transformer/moe/expert_share.h"

namespace megatron {
namespace {

/// The map of one expert alone.
Tensor map_of(const Context& ctx, const Tensor& map, int64_t expert) {
  Tensor alone = ctx.empty("sequential_mlp.map", map.shape(), DType::kUInt8);
  const Tensor from = map.slice(1, expert, 1);
  Tensor to = alone.slice(1, expert, 1);
  launch(ctx, [&](auto& stream) {
    kernels::fill(stream, {.y = alone.view()});
    kernels::copy(stream, {.x = from.view(), .y = to.view()});
  });
  return alone;
}

}  // namespace

SequentialMlp::SequentialMlp(const ModuleContext& context, const MoeConfig& moe)
    : activation_(expert_activation(context.config)),
      apply_probs_on_input_(moe.apply_probs_on_input),
      recomputes_activation_(context.config.recomputes(RecomputeModule::kMoeAct)),
      offload_of_fc1_(context.config.offload_of(OffloadModule::kExpertFc1)),
      offload_of_activation_(context.config.offload_of(OffloadModule::kMoeAct)) {
  const TransformerConfig& config = context.config;
  const ExpertShare share = ExpertShare::of(context, moe);
  const int64_t h = config.hidden_size, f = moe.ffn_hidden_size, num_parts = activation_.is_gated ? 2 : 1;
  const ExpertCut rows{.dim = 0, .num_parts = num_parts}, columns{.dim = 1};
  experts_.resize(static_cast<size_t>(share.count));
  for (int64_t i = 0; i < share.count; ++i) {
    Expert& expert = experts_[static_cast<size_t>(i)];
    const auto add = [&](std::unique_ptr<Parameter>& slot, std::string_view name, const Shape& shape,
                         const std::optional<ExpertCut>& cut, double std) {
      const ModuleContext own = context.at(fmt::format("local_experts.{}", share.first + i));
      ParameterOptions options = own.parameter(name, shard_of_one_expert(shape, cut));
      options.init_std = std;
      register_parameter(slot, context.ctx, std::move(options));
    };
    add(expert.fc1_weight, "linear_fc1.weight", {num_parts * f, h}, rows, config.init_method_std);
    if (config.add_bias_linear) add(expert.fc1_bias, "linear_fc1.bias", {num_parts * f}, rows, 0);
    add(expert.fc2_weight, "linear_fc2.weight", {h, f}, columns, context.output_init_std());
    if (config.add_bias_linear) add(expert.fc2_bias, "linear_fc2.bias", {h}, std::nullopt, 0);
  }
}

Tensor SequentialMlp::forward(Context& ctx, const Tensor& x, const Routing& routing) const {
  Tensor sum = expert_forward(ctx, x, routing, 0);
  for (int64_t i = 1; i < std::ssize(experts_); ++i) sum = add(ctx, sum, expert_forward(ctx, x, routing, i));
  return sum;
}

Tensor SequentialMlp::expert_forward(Context& ctx, const Tensor& x, const Routing& routing, int64_t index) const {
  const Expert& expert = experts_[static_cast<size_t>(index)];
  const Permutation permutation = sort_by_expert(
      ctx, map_of(ctx, routing.map, index), {.capacity = x.size(0), .max_experts_per_token = 1, .is_exact = false});
  const Tensor probs = permute_probs(ctx, routing.probs, permutation);
  Tensor rows = permute(ctx, x, permutation);
  if (apply_probs_on_input_) rows = scale_rows(ctx, rows, probs);
  const Tensor weights = apply_probs_on_input_ ? Tensor() : probs;
  std::optional<OffloadScope> scope(std::in_place, ctx, offload_of_fc1_);
  const Tensor up = linear(ctx, rows, *expert.fc1_weight, expert.fc1_bias.get());
  scope.reset();
  scope.emplace(ctx, offload_of_activation_);
  const Tensor active = expert_activation(ctx, up, weights, activation_, recomputes_activation_);
  scope.reset();
  Tensor down = linear(ctx, active, *expert.fc2_weight, nullptr);
  if (expert.fc2_bias) {
    // The offsets of this expert's rows: from 0 to their number.
    const RowGroups own{.offsets = permutation.groups.offsets.slice(0, index, 2),
                        .capacity = permutation.groups.capacity,
                        .count = permutation.groups.count};
    down = grouped_bias(ctx, down, own, *expert.fc2_bias, weights);
  }
  return unpermute(ctx, down, permutation);
}

}  // namespace megatron
