#include "megatron/tensor_parallel/layers.h"

namespace megatron {
namespace {

ParameterOptions parameter(const ParallelLinearOptions& options, const ProcessGroup& group, std::string_view suffix,
                           ShardSpec shard) {
  return {.name = options.name + std::string(suffix),
          .shard = std::move(shard),
          .dtype = options.dtype,
          .shard_rank = group.rank(),
          .num_shards = group.size(),
          .is_embedding_or_output = options.is_embedding_or_output};
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
  ShardSpec shard = ShardSpec::whole({rows, options.input_size});
  shard.cut = options.output;
  ParameterOptions weight = parameter(options, group, ".weight", shard);
  weight.init_std = options.init_std;
  register_parameter(weight_, ctx, std::move(weight));
  if (!options.bias) return;
  shard.global_shape = {rows};
  register_parameter(bias_, ctx, parameter(options, group, ".bias", shard));
}

Tensor ColumnParallelLinear::forward(Context& ctx, const Tensor& x) const {
  const PlaceScope place(ctx, weight_->module());
  return linear_with_communication(ctx, x, *weight_, skip_bias_add_ ? nullptr : bias_.get(), group_, communication_);
}

RowParallelLinear::RowParallelLinear(const Context& ctx, const ParallelLinearOptions& options,
                                     const ProcessGroup& group)
    : group_(group),
      communication_{
          .kind = options.sequence_parallel ? LinearCommunication::kScatterOutput : LinearCommunication::kReduceOutput,
          .overlap = options.overlap} {
  const int64_t rows = options.output.global_size();
  ShardSpec shard = ShardSpec::whole({rows, options.input_size});
  shard.cut =
      ShardCut{.dim = 1, .axis = ShardAxis::kTensor, .num_groups = 1, .sections = {{options.input_size, false}}};
  ParameterOptions weight = parameter(options, group, ".weight", shard);
  weight.init_std = options.init_std;
  register_parameter(weight_, ctx, std::move(weight));
  if (!options.bias) return;
  ShardSpec whole = ShardSpec::whole({rows});
  if (options.sequence_parallel) whole.grad_reduction = GradReduction::kSumOverTensor;
  register_parameter(bias_, ctx, parameter(options, group, ".bias", whole));
}

Tensor RowParallelLinear::forward(Context& ctx, const Tensor& x) const {
  const PlaceScope place(ctx, weight_->module());
  return linear_with_communication(ctx, x, *weight_, nullptr, group_, communication_);
}

}  // namespace megatron
