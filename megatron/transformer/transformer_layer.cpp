#include "megatron/transformer/transformer_layer.h"

#include "megatron/autograd/recompute.h"
#include "megatron/ops/add.h"
#include "megatron/ops/bias_dropout_add.h"
#include "megatron/transformer/layer_plan.h"
#include "megatron/transformer/moe/moe_step.h"
#include "megatron/transformer/multi_latent_attention.h"
#include "megatron/transformer/self_attention.h"

namespace megatron {
namespace {

std::unique_ptr<Attention> make_attention(const ModuleContext& context, Mixer mixer, int64_t layer_number) {
  if (mixer == Mixer::kLatentAttention) return std::make_unique<MultiLatentAttention>(context, layer_number);
  return std::make_unique<SelfAttention>(context, layer_number);
}

/// A norm that has the name of the linear layer beside it in checkpoints, or without such a layer a name of its own.
using NormNames = ModuleContext (ModuleContext::*)(std::string_view norm, std::string_view linear) const;
std::unique_ptr<Norm> make_norm(const ModuleContext& context, NormNames names, std::string_view norm,
                                std::string_view linear) {
  return std::make_unique<Norm>(linear.empty() ? context.at(norm) : (context.*names)(norm, linear),
                                context.config.hidden_size, NormPlace::kResidualStream);
}

}  // namespace

TransformerLayer::TransformerLayer(const ModuleContext& context, int64_t layer_number)
    : layer_number_(layer_number),
      hidden_dropout_(context.config.hidden_dropout),
      residual_multiplier_(context.config.residual_multiplier),
      dtype_(context.config.params_dtype),
      offload_of_attn_norm_(context.config.offload_of(OffloadModule::kAttnNorm)),
      offload_of_mlp_norm_(context.config.offload_of(OffloadModule::kMlpNorm)),
      recomputes_norms_(context.config.recomputes(RecomputeModule::kLayerNorm)),
      recomputes_mlp_(context.config.recomputes(RecomputeModule::kMlp)),
      recomputes_moe_(context.config.recomputes(RecomputeModule::kMoe)),
      attention_path_(context.path + ".self_attention.dropout"),
      mlp_path_(context.path + ".mlp.dropout") {
  const LayerKind kind = layer_kind(context.config, layer_number);
  require_can_build(kind);
  const auto add_pre = [&](std::unique_ptr<Norm>& slot, std::string_view name, std::string_view linear) {
    if (context.config.has_pre_norms())
      register_module(slot, make_norm(context, &ModuleContext::norm_before, name, linear));
  };
  const auto add_post = [&](std::unique_ptr<Norm>& slot, std::string_view name, std::string_view linear) {
    if (context.config.has_post_norms())
      register_module(slot, make_norm(context, &ModuleContext::norm_behind, name, linear));
  };
  if (kind.mixer != Mixer::kNone) {
    // The projections of latent attention have no norm before them in Transformer Engine either.
    add_pre(input_layernorm_, "input_layernorm", context.config.mla ? "" : "self_attention.linear_qkv");
    register_module(self_attention_, make_attention(context.at("self_attention"), kind.mixer, layer_number));
    add_post(post_self_attn_layernorm_, "post_self_attn_layernorm", "self_attention.linear_proj");
  }
  if (kind.feed_forward == FeedForward::kNone) return;
  const bool has_experts = kind.feed_forward == FeedForward::kExperts;
  add_pre(pre_mlp_layernorm_, "pre_mlp_layernorm", has_experts ? "" : "mlp.linear_fc1");
  if (has_experts)
    register_module(moe_, std::make_unique<MoeLayer>(context.at("mlp"), context.config.moe.value()));
  else
    register_module(mlp_, std::make_unique<Mlp>(context.at("mlp")));
  add_post(post_mlp_layernorm_, "post_mlp_layernorm", has_experts ? "" : "mlp.linear_fc2");
}

Tensor TransformerLayer::forward(Context& ctx, const Tensor& hidden, const LayerInputs& inputs) const {
  const Tensor x = self_attention_ ? attention_block(ctx, hidden, inputs) : hidden;
  return has_feed_forward() ? feed_forward_block(ctx, x, inputs) : x;
}

std::vector<LayerPart> TransformerLayer::parts() const {
  using Forward = Tensor (TransformerLayer::*)(Context&, const Tensor&, const LayerInputs&) const;
  const auto part = [this](const char* name, std::initializer_list<const Module*> modules, Forward forward) {
    LayerPart result{.name = name, .parameters = {}, .forward = {}};
    for (const Module* module : modules)
      for (Parameter* parameter : module ? module->parameters() : std::vector<Parameter*>{})
        result.parameters.push_back(parameter);
    result.forward = [this, forward](Context& ctx, const Payload& in, const LayerInputs& inputs) {
      return Payload{{"hidden", (this->*forward)(ctx, at(in, "hidden"), inputs)}};
    };
    return result;
  };
  std::vector<LayerPart> parts;
  if (self_attention_)
    parts.push_back(part("self_attention",
                         {input_layernorm_.get(), self_attention_.get(), post_self_attn_layernorm_.get()},
                         &TransformerLayer::attention_block));
  if (has_feed_forward())
    parts.push_back(part("mlp", {pre_mlp_layernorm_.get(), mlp_.get(), moe_.get(), post_mlp_layernorm_.get()},
                         &TransformerLayer::feed_forward_block));
  return parts;
}

std::unique_ptr<LayerState> TransformerLayer::make_state(const Context& ctx, const LayerStateSizes& sizes) const {
  return self_attention_ ? self_attention_->make_state(ctx, sizes) : nullptr;
}

Tensor TransformerLayer::attention_block(Context& ctx, const Tensor& hidden, const LayerInputs& inputs) const {
  return residual_block(
      ctx, hidden, {input_layernorm_.get(), post_self_attn_layernorm_.get(), offload_of_attn_norm_},
      [&](Context& c, const Tensor& normed) { return self_attention_->forward(c, normed, inputs); }, attention_path_,
      inputs);
}

Tensor TransformerLayer::feed_forward_block(Context& ctx, const Tensor& hidden, const LayerInputs& inputs) const {
  return residual_block(
      ctx, hidden, {pre_mlp_layernorm_.get(), post_mlp_layernorm_.get(), offload_of_mlp_norm_},
      [&](Context& c, const Tensor& normed) { return feed_forward(c, normed, inputs); }, mlp_path_, inputs);
}

Tensor TransformerLayer::residual_block(Context& ctx, const Tensor& hidden, const BlockNorms& norms, const Block& block,
                                        std::string_view path, const LayerInputs& inputs) const {
  const Tensor normed = norms.before ? normalized(ctx, norms, hidden) : cast(ctx, hidden, dtype_);
  const PlaceScope place(ctx, path.substr(0, path.rfind('.')));
  const BlockOutput out = block(ctx, normed);
  const Tensor output = norms.behind ? norms.behind->forward(ctx, out.output) : out.output;
  return bias_dropout_add(ctx, scale(ctx, output, residual_multiplier_), out.bias, hidden,
                          {.rate = hidden_dropout_, .path = path, .rows = inputs.rows});
}

Tensor TransformerLayer::normalized(Context& ctx, const BlockNorms& norms, const Tensor& hidden) const {
  const OffloadScope scope(ctx, norms.offload);
  const Norm& norm = *norms.before;
  Tensor normed = norm.forward(ctx, hidden);
  if (recomputes_norms_)
    recompute_when_saved(ctx, normed, hidden, [&norm](Context& c, const Tensor& x) { return norm.forward(c, x); });
  return normed;
}

BlockOutput TransformerLayer::feed_forward(Context& ctx, const Tensor& x, const LayerInputs& inputs) const {
  if (moe_ ? !recomputes_moe_ : !recomputes_mlp_)
    return moe_ ? BlockOutput{expert_forward(ctx, x, inputs)} : mlp_->forward(ctx, x);
  const auto function = [this, inputs](Context& c, const Payload& in) {
    const Tensor& input = at(in, "x");
    return Payload{{"output", moe_ ? expert_forward(c, input, inputs) : mlp_->forward(c, input).output}};
  };
  return {at(recompute(ctx, {{"x", x}}, function), "output"), mlp_ ? mlp_->output_bias() : nullptr};
}

Tensor TransformerLayer::expert_forward(Context& ctx, const Tensor& x, const LayerInputs& inputs) const {
  const MoeOutput out = moe_->forward(ctx, x, {step_tensor(inputs.step, kAttachedLossScale), inputs.rows});
  add_to_step(ctx, inputs.step, layer_number_ + inputs.mtp_depth, out);
  return out.output;
}

}  // namespace megatron
