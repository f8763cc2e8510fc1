#include "megatron/transformer/multi_latent_attention.h"

#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "megatron/autograd/recompute.h"
#include "megatron/ops/absorbed_heads.h"
#include "megatron/ops/columns.h"
#include "megatron/tensor_parallel/mappings.h"
#include "megatron/transformer/key_value_cache.h"
#include "megatron/transformer/latent_cache.h"

namespace megatron {
namespace {

LatentHeadSizes head_sizes(const MlaConfig& mla) {
  return {.without_position = mla.qk_head_dim, .rotated = mla.qk_pos_emb_head_dim, .value = mla.v_head_dim};
}

/// YaRN lets scores grow with the length of the context; the factor is 1 without.
double softmax_scale(const TransformerConfig& config) {
  const double growth = kernels::yarn_mscale(config.yarn_rotary_scaling_factor, config.yarn_mscale_all_dim);
  return growth * growth / std::sqrt(static_cast<double>(head_sizes(*config.mla).query()));
}

}  // namespace

MultiLatentAttention::MultiLatentAttention(const ModuleContext& context, int64_t layer_number)
    : num_heads_(num_heads_of_rank(context)),
      sizes_(head_sizes(context.config.mla.value())),
      kv_lora_rank_(context.config.mla->kv_lora_rank),
      dtype_(context.config.params_dtype),
      tensor_group_(context.groups.tp),
      sequence_parallel_(context.sequence_parallel),
      recomputes_up_projections_(context.config.recomputes(RecomputeModule::kMlaUpProj)),
      offload_of_qkv_linear_(context.config.offload_of(OffloadModule::kQkvLinear)),
      offload_of_attn_proj_(context.config.offload_of(OffloadModule::kAttnProj)) {
  register_module(core_attention_, std::make_unique<DotProductAttention>(context.at("core_attention"), layer_number,
                                                                         softmax_scale(context.config)));
  register_projections(context);
  if (!context.config.qk_layernorm) return;
  const MlaConfig& mla = *context.config.mla;
  if (mla.q_lora_rank)
    register_module(q_layernorm_, std::make_unique<Norm>(context.norm_before("q_layernorm", "linear_q_up_proj"),
                                                         *mla.q_lora_rank, NormPlace::kQueryLatent));
  register_module(kv_layernorm_, std::make_unique<Norm>(context.norm_before("kv_layernorm", "linear_kv_up_proj"),
                                                        mla.kv_lora_rank, NormPlace::kResidualStream));
}

void MultiLatentAttention::register_projections(const ModuleContext& context) {
  const TransformerConfig& config = context.config;
  const MlaConfig& mla = *config.mla;
  const int64_t h = config.hidden_size, n = config.num_attention_heads;
  const auto add = [&]<class Linear>(std::unique_ptr<Linear>& slot, std::string_view name, int64_t input_size,
                                     int64_t output_size) {
    const bool is_output = std::is_same_v<Linear, RowParallelLinear>;
    const ModuleContext inner = context.at(name);
    const ParallelLinearOptions options{
        .name = inner.path,
        .stored = inner.stored,
        .input_size = input_size,
        .output = {.sections = {{output_size, false}}},
        .bias = is_output && config.add_bias_linear,
        .dtype = config.params_dtype,
        .init_std = is_output ? context.output_init_std() : config.init_method_std,
        .sequence_parallel = context.sequence_parallel,
        .overlap = context.overlap,
    };
    register_module(slot, std::make_unique<Linear>(context.ctx, options, context.groups.tp));
  };
  add(linear_proj_, "linear_proj", n * sizes_.value, h);
  if (mla.q_lora_rank) {
    add(linear_q_down_proj_, "linear_q_down_proj", h, *mla.q_lora_rank);
    add(linear_q_up_proj_, "linear_q_up_proj", *mla.q_lora_rank, n * sizes_.query());
  } else {
    add(linear_q_proj_, "linear_q_proj", h, n * sizes_.query());
  }
  add(linear_kv_down_proj_, "linear_kv_down_proj", h, mla.kv_lora_rank + sizes_.rotated);
  add(linear_kv_up_proj_, "linear_kv_up_proj", mla.kv_lora_rank, n * (sizes_.without_position + sizes_.value));
}

std::vector<ScaledRows> MultiLatentAttention::clipped_rows(std::span<const double> max_logits,
                                                           const QkClip& clip) const {
  Parameter* query = linear_q_proj_ ? &linear_q_proj_->weight() : &linear_q_up_proj_->weight();
  Parameter* key = &linear_kv_up_proj_->weight();
  const int64_t plain = sizes_.without_position, first_head = tensor_group_.rank() * num_heads_;
  std::vector<ScaledRows> rows;
  for (int64_t head = 0; head < num_heads_; ++head) {
    const double factor = clip.logit_factor(max_logits[static_cast<size_t>(first_head + head)]);
    if (factor == 1) continue;
    const int64_t query_row = head * sizes_.query(), key_row = head * (plain + sizes_.value);
    rows.push_back({query, query_row, query_row + plain, clip.query_factor(factor)});
    rows.push_back({query, query_row + plain, query_row + sizes_.query(), factor});
    rows.push_back({key, key_row, key_row + plain, clip.key_factor(factor)});
  }
  return rows;
}

bool MultiLatentAttention::caches_latents(const Context& ctx) const {
  constexpr int64_t kMostOnCuda = 256;
  return ctx.device.kind() != DeviceKind::kCuda || kv_lora_rank_ + sizes_.rotated <= kMostOnCuda;
}

std::unique_ptr<LayerState> MultiLatentAttention::make_state(const Context& ctx, const LayerStateSizes& sizes) const {
  if (caches_latents(ctx)) return std::make_unique<LatentCache>(ctx, sizes, kv_lora_rank_, sizes_.rotated, dtype_);
  const Shape keys{sizes.max_rows, sizes.b, num_heads_, sizes_.query()};
  const Shape values{sizes.max_rows, sizes.b, num_heads_, sizes_.value};
  return std::make_unique<KeyValueCache>(ctx, keys, values, dtype_);
}

Tensor MultiLatentAttention::queries(Context& ctx, const Tensor& latent, const RopeTable& rope,
                                     const SequenceLayout& layout) const {
  const ColumnParallelLinear& up = linear_q_proj_ ? *linear_q_proj_ : *linear_q_up_proj_;
  return latent_query(ctx, up.forward(ctx, latent), sizes_, rope, layout);
}

Tensor MultiLatentAttention::query_of(Context& ctx, const Tensor& x, const LayerInputs& inputs) const {
  Tensor latent = x;
  if (linear_q_down_proj_) latent = linear_q_down_proj_->forward(ctx, x);
  if (q_layernorm_) latent = q_layernorm_->forward(ctx, latent);
  const Tensor query = queries(ctx, latent, *inputs.rope, inputs.layout);
  if (recomputes_up_projections_)
    megatron::recompute_when_saved(ctx, query, latent,
                                   [this, rope = *inputs.rope, layout = inputs.layout](Context& c, const Tensor& from) {
                                     return queries(c, from, rope, layout);
                                   });
  return query;
}

KeyValue MultiLatentAttention::keys_and_values(Context& ctx, const Latents& latents, const RopeTable& rope,
                                               const SequenceLayout& layout) const {
  return latent_key_value(ctx, up_projected(ctx, latents.latent), latents.shared, sizes_, rope, layout);
}

void MultiLatentAttention::recompute_when_saved(Context& ctx, const KeyValue& heads, const Latents& latents,
                                                const LayerInputs& inputs) const {
  if (!ctx.tape) return;
  // One projection makes both: the first that is asked for is computed, and the other one waits until it is taken.
  struct Saved {
    SavedTensor latent, shared;
    KeyValue again;
  };
  const auto saved = std::make_shared<Saved>(
      Saved{.latent = SavedTensor(ctx, latents.latent), .shared = SavedTensor(ctx, latents.shared), .again = {}});
  const auto taken = [this, saved, rope = *inputs.rope, layout = inputs.layout](Context& c, Tensor KeyValue::*part) {
    if (!(saved->again.*part).defined())
      saved->again = keys_and_values(c, {.latent = saved->latent.get(c), .shared = saved->shared.get(c)}, rope, layout);
    return std::exchange(saved->again.*part, {});
  };
  ctx.tape->set_rematerialization(heads.key.slot, [taken](Context& c) { return taken(c, &KeyValue::key); });
  ctx.tape->set_rematerialization(heads.value.slot, [taken](Context& c) { return taken(c, &KeyValue::value); });
}

MultiLatentAttention::Latents MultiLatentAttention::latents_of(Context& ctx, const Tensor& x) const {
  ColumnParts parts = split_columns(ctx, linear_kv_down_proj_->forward(ctx, x), kv_lora_rank_);
  if (kv_layernorm_) parts.first = kv_layernorm_->forward(ctx, parts.first);
  // Every rank's heads use the part that rotates: its gradient is the sum over the ranks.
  return {parts.first, sequence_parallel_ ? gather_from_sequence_parallel_region(ctx, parts.second, tensor_group_)
                                          : copy_to_tensor_model_parallel_region(ctx, parts.second, tensor_group_)};
}

Tensor MultiLatentAttention::up_projected(Context& ctx, const Tensor& latent) const {
  const OffloadScope scope(ctx, offload_of_qkv_linear_);
  return linear_kv_up_proj_->forward(ctx, latent);
}

Tensor MultiLatentAttention::attend(Context& ctx, const Tensor& query, const Latents& latents,
                                    const LayerInputs& inputs, KeyValueCache* cache) const {
  KeyValue heads = keys_and_values(ctx, latents, *inputs.rope, inputs.layout);
  if (recomputes_up_projections_) recompute_when_saved(ctx, heads, latents, inputs);
  if (cache) {
    KeyValueCache::Filled filled = cache->append(ctx, heads.key, heads.value);
    heads = {std::move(filled.key), std::move(filled.value)};
  }
  return core_attention_->forward(ctx, query, heads.key, heads.value, inputs, false);
}

Tensor MultiLatentAttention::attend_to_latents(Context& ctx, const Tensor& query, const Tensor& tokens,
                                               const LayerInputs& inputs) const {
  Parameter& weight = linear_kv_up_proj_->weight();
  const Tensor attended = core_attention_->forward(ctx, absorbed_query(ctx, query, weight, sizes_), tokens,
                                                   tokens.slice(3, 0, kv_lora_rank_), inputs, false);
  return absorbed_value(ctx, attended, weight, sizes_);
}

Tensor MultiLatentAttention::attend_cached(Context& ctx, const Tensor& query, const Latents& latents,
                                           const LayerInputs& inputs) const {
  if (!caches_latents(ctx)) return attend(ctx, query, latents, inputs, &state_as<KeyValueCache>(*inputs.state));
  require<NotSupported>(!sequence_parallel_ || tensor_group_.size() == 1,
                        "[MultiLatentAttention] a generation has no sequence parallelism. Leave out "
                        "--sequence-parallel.");
  auto& cache = state_as<LatentCache>(*inputs.state);
  const bool is_prompt = cache.num_rows() == 0;  // shorter this way: heads are narrower than latent vectors
  const int64_t s = latents.shared.size(0), b = latents.shared.size(1);
  const Tensor rotated = rope(ctx, latents.shared.reshape({s, b, 1, sizes_.rotated}), *inputs.rope, inputs.layout);
  const Tensor tokens = cache.append(ctx, latents.latent, rotated.reshape(latents.shared.shape()));
  return is_prompt ? attend(ctx, query, latents, inputs, nullptr) : attend_to_latents(ctx, query, tokens, inputs);
}

BlockOutput MultiLatentAttention::forward(Context& ctx, const Tensor& x, const LayerInputs& inputs) const {
  require(inputs.rope != nullptr, "[MultiLatentAttention] the layer got no table of positions.");
  std::optional<OffloadScope> scope(std::in_place, ctx, offload_of_qkv_linear_);
  const Tensor query = query_of(ctx, x, inputs);
  const Latents latents = latents_of(ctx, x);
  scope.reset();
  const Tensor attended =
      inputs.state ? attend_cached(ctx, query, latents, inputs) : attend(ctx, query, latents, inputs, nullptr);
  scope.emplace(ctx, offload_of_attn_proj_);
  return {linear_proj_->forward(ctx, attended), linear_proj_->bias()};
}

}  // namespace megatron
