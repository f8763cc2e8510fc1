#include "megatron/tensor_parallel/layers.h"

#include "megatron/ops/linear.h"

namespace megatron {
namespace {

/// A layer that was given no name for checkpoints is stored under its own.
StoredName stored_name(const ParallelLinearOptions& options, std::string_view parameter) {
  return options.stored.key.empty() ? StoredName{} : options.stored.with(parameter);
}

ParameterOptions weight_options(const ParallelLinearOptions& options, const ProcessGroup& group, ShardSpec shard) {
  return {.name = options.name + ".weight",
          .shard = std::move(shard),
          .dtype = options.dtype,
          .place = {.tensor = {group.rank(), group.size()}},
          .stored = stored_name(options, "weight"),
          .is_embedding_or_output = options.is_embedding_or_output,
          .init_std = options.init_std};
}

ParameterOptions bias_options(const ParallelLinearOptions& options, const ProcessGroup& group, ShardSpec shard) {
  ParameterOptions bias = weight_options(options, group, std::move(shard));
  bias.name = options.name + ".bias";
  bias.stored = stored_name(options, "bias");
  bias.weight_decay = WeightDecay::kNever;
  bias.init_std = 0;
  return bias;
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(const Context& ctx, const ParallelLinearOptions& options,
                                           const ProcessGroup& group)
    : group_(group),
      communication_{
          .kind = options.sequence_parallel ? LinearCommunication::kGatherInput : LinearCommunication::kCopyInput,
          .overlap = options.overlap},
      skip_bias_add_(options.skip_bias_add) {
  const int64_t rows = options.output.global_size();
  register_parameter(weight_, ctx,
                     weight_options(options, group, ShardSpec::cut_by({rows, options.input_size}, options.output)));
  if (!options.bias) return;
  register_parameter(bias_, ctx, bias_options(options, group, ShardSpec::cut_by({rows}, options.output)));
}

Tensor ColumnParallelLinear::forward(Context& ctx, const Tensor& x) const {
  const PlaceScope place(ctx, weight_->module());
  return linear_with_communication(ctx, x, *weight_, skip_bias_add_ ? nullptr : bias_.get(), group_, communication_);
}

DuplicatedLinear::DuplicatedLinear(const Context& ctx, const ParallelLinearOptions& options,
                                   const ProcessGroup& group) {
  const int64_t rows = options.output.global_size();
  const auto whole = [&](const Shape& shape) {
    ShardSpec shard = ShardSpec::whole(shape);
    if (options.sequence_parallel && group.size() > 1) shard.grad_reduction = GradReduction::kSumOverTensor;
    return shard;
  };
  register_parameter(weight_, ctx, weight_options(options, group, whole({rows, options.input_size})));
  if (options.bias) register_parameter(bias_, ctx, bias_options(options, group, whole({rows})));
}

Tensor DuplicatedLinear::forward(Context& ctx, const Tensor& x) const {
  const PlaceScope place(ctx, weight_->module());
  return linear(ctx, x, *weight_, bias_.get());
}

RowParallelLinear::RowParallelLinear(const Context& ctx, const ParallelLinearOptions& options,
                                     const ProcessGroup& group)
    : group_(group),
      communication_{
          .kind = options.sequence_parallel ? LinearCommunication::kScatterOutput : LinearCommunication::kReduceOutput,
          .overlap = options.overlap} {
  const int64_t rows = options.output.global_size();
  register_parameter(weight_, ctx,
                     weight_options(options, group,
                                    ShardSpec::cut_by({rows, options.input_size},
                                                      {.dim = 1, .sections = {{options.input_size, false}}})));
  if (!options.bias) return;
  ShardSpec whole = ShardSpec::whole({rows});
  if (options.sequence_parallel) whole.grad_reduction = GradReduction::kSumOverTensor;
  register_parameter(bias_, ctx, bias_options(options, group, whole));
}

Tensor RowParallelLinear::forward(Context& ctx, const Tensor& x) const {
  const PlaceScope place(ctx, weight_->module());
  return linear_with_communication(ctx, x, *weight_, nullptr, group_, communication_);
}

}  // namespace megatron
