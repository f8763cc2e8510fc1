#include "megatron/transformer/multi_token_prediction.h"

#include "megatron/autograd/recompute.h"
#include "megatron/ops/add.h"
#include "megatron/ops/columns.h"
#include "megatron/tensor_parallel/mappings.h"

namespace megatron {

MultiTokenPredictionLayer::MultiTokenPredictionLayer(const ModuleContext& context, const LayerSpec& layer_spec)
    : tensor_group_(context.groups.tp),
      sequence_parallel_(context.sequence_parallel),
      is_recomputed_(context.config.recompute_granularity == RecomputeGranularity::kFull),
      hidden_dtype_(context.config.fp32_residual_connection ? DType::kFloat32 : context.config.params_dtype) {
  const TransformerConfig& config = context.config;
  const int64_t h = config.hidden_size;
  const auto norm = [&](std::string_view name) {
    return std::make_unique<Norm>(context.at(name), h, NormPlace::kResidualStream);
  };
  register_module(enorm_, norm("enorm"));
  register_module(hnorm_, norm("hnorm"));
  const ModuleContext projection = context.at("eh_proj");
  const ParallelLinearOptions options{.name = projection.path,
                                      .stored = projection.stored,
                                      .input_size = 2 * h,
                                      .output = {.sections = {{h, false}}},
                                      .dtype = config.params_dtype,
                                      .init_std = config.init_method_std,
                                      .sequence_parallel = context.sequence_parallel,
                                      .overlap = context.overlap};
  register_module(eh_proj_, std::make_unique<ColumnParallelLinear>(context.ctx, options, context.groups.tp));
  register_module(transformer_layer_, layer_spec(context.at("transformer_layer"), config.num_layers));
  register_module(final_layernorm_, norm("final_layernorm"));
}

Tensor MultiTokenPredictionLayer::forward(Context& ctx, const Tensor& hidden, const Tensor& embedded,
                                          const LayerInputs& inputs) const {
  if (!is_recomputed_) return run(ctx, hidden, embedded, inputs);
  const auto function = [this, inputs](Context& c, const Payload& in) {
    return Payload{{"hidden", run(c, at(in, "hidden"), at(in, "embedded"), inputs)}};
  };
  return at(recompute(ctx, {{"hidden", hidden}, {"embedded", embedded}}, function), "hidden");
}

Tensor MultiTokenPredictionLayer::run(Context& ctx, const Tensor& hidden, const Tensor& embedded,
                                      const LayerInputs& inputs) const {
  const Tensor both = join_columns(ctx, enorm_->forward(ctx, embedded), hnorm_->forward(ctx, hidden));
  Tensor x = gather_from_tensor_model_parallel_region(ctx, eh_proj_->forward(ctx, both), tensor_group_);
  if (sequence_parallel_) x = scatter_to_sequence_parallel_region(ctx, x, tensor_group_);
  return final_layernorm_->forward(ctx, transformer_layer_->forward(ctx, cast(ctx, x, hidden_dtype_), inputs));
}

}  // namespace megatron
