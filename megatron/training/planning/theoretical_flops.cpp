#include "megatron/training/planning/theoretical_flops.h"

#include "megatron/base/error.h"
#include "megatron/transformer/layer_plan.h"
#include "megatron/transformer/transformer_config.h"

namespace megatron {
namespace {

constexpr double kForwardAndBackward = 3.0;
constexpr double kPerMultiplyAdd = 2.0;

/// Multiply-adds of the forward of some layers.
struct Products {
  double per_token = 0;
  double per_square = 0;  // per squared length of a sequence: scores and values, causal half
};

double as_double(int64_t value) { return static_cast<double>(value); }

/// The number of matrices of a feed-forward.
double matrices(const TransformerConfig& config) {
  return config.gated_linear_unit && config.activation_func != ActivationFunc::kQuickGelu ? 3 : 2;
}

Products dense_products(const TransformerConfig& config) {
  return {.per_token = as_double(config.hidden_size) * as_double(config.ffn_hidden_size) * matrices(config)};
}

Products expert_products(const TransformerConfig& config, const MoeConfig& moe) {
  const double h = as_double(config.hidden_size);
  double routed = as_double(moe.ffn_hidden_size * moe.topk.topk) * matrices(config);
  if (moe.latent_size) routed = routed * as_double(*moe.latent_size) / h + 2 * as_double(*moe.latent_size);
  return {.per_token = h * (routed + as_double(moe.shared_expert_intermediate_size) * matrices(config))};
}

Products self_attention_products(const TransformerConfig& config) {
  const double h = as_double(config.hidden_size);
  const double query = as_double(config.kv_channels * config.num_attention_heads);
  const double key = as_double(config.kv_channels * config.num_query_groups);
  const double gate = config.attention_output_gate ? query : 0;
  return {.per_token = h * (query + 2 * key + gate) + query * h, .per_square = query};
}

Products latent_attention_products(const TransformerConfig& config, const MlaConfig& mla) {
  const int64_t heads = config.num_attention_heads, query = mla.qk_head_dim + mla.qk_pos_emb_head_dim;
  return {.per_token = as_double(mla.num_weights(config.hidden_size, heads)),
          .per_square = as_double(heads * (query + mla.v_head_dim)) / 2};
}

/// Input projection, recurrence (7 operations for each value and state) and output projection.
Products state_space_products(const TransformerConfig& config, const SsmConfig& ssm) {
  const double h = as_double(config.hidden_size), inner = as_double(SsmConfig::inner_size(config.hidden_size));
  const double state = as_double(ssm.state_dim);
  const double projected = 2 * inner + 2 * as_double(ssm.num_groups) * state + as_double(ssm.heads(config.hidden_size));
  return {.per_token = h * projected + 7 * inner * state / kPerMultiplyAdd + inner * h};
}

Products mixer_products(const TransformerConfig& config, Mixer mixer) {
  switch (mixer) {
    case Mixer::kSelfAttention:
      return self_attention_products(config);
    case Mixer::kLatentAttention:
      return latent_attention_products(config, config.mla.value());
    case Mixer::kStateSpace:
      return state_space_products(config, config.ssm);
    case Mixer::kLinearAttention:
      throw NotSupported("[theoretical_flops] the operations of linear attention are not counted yet.");
    case Mixer::kNone:
      return {};
  }
  throw InternalError("[theoretical_flops] unknown mixer");
}

Products feed_forward_products(const TransformerConfig& config, FeedForward feed_forward) {
  switch (feed_forward) {
    case FeedForward::kDense:
      return dense_products(config);
    case FeedForward::kExperts:
      return expert_products(config, config.moe.value());
    case FeedForward::kNone:
      return {};
  }
  throw InternalError("[theoretical_flops] unknown feed-forward");
}

/// The matmuls of all layers, those of multi-token prediction included.
Products layer_products(const TransformerConfig& config) {
  const LayerPlan plan(config);
  Products sum;
  const auto add = [&](const LayerKind& kind, int64_t num_layers) {
    const Products mixer = mixer_products(config, kind.mixer);
    const double per_token = mixer.per_token + feed_forward_products(config, kind.feed_forward).per_token;
    sum.per_token += per_token * as_double(num_layers);
    sum.per_square += mixer.per_square * as_double(num_layers);
  };
  for (const LayerPlan::Run& run : plan.runs()) add(run.kind, run.num_layers);
  if (config.mtp.num_layers > 0) add(plan.at(plan.num_layers()), config.mtp.num_layers);
  return sum;
}

}  // namespace

double theoretical_flops(const TransformerConfig& config, double num_tokens, double sum_squared_lengths) {
  const double h = as_double(config.hidden_size), mtp = as_double(config.mtp.num_layers);
  const Products layers = layer_products(config);
  const double mtp_projections = mtp * (3 * h + 2 * h * h);
  const double logits = h * as_double(config.padded_vocab_size) * (mtp + 1);
  return kForwardAndBackward * kPerMultiplyAdd *
         (num_tokens * (layers.per_token + mtp_projections + logits) + sum_squared_lengths * layers.per_square);
}

double theoretical_flops(const TransformerConfig& config, int64_t batch_size, int64_t seq_length) {
  const double batch = as_double(batch_size), s = as_double(seq_length);
  return theoretical_flops(config, batch * s, batch * s * s);
}

LayerCosts layer_costs_of(const TransformerConfig& config, int64_t seq_length) {
  TransformerConfig without_head = config;
  without_head.padded_vocab_size = 0;
  const double layers = theoretical_flops(without_head, 1, seq_length);
  if (layers <= 0) return {};
  const double head = theoretical_flops(config, 1, seq_length) - layers;
  return {.embedding = 0, .layer = 1, .head = head / (layers / as_double(config.num_layers + config.mtp.num_layers))};
}

}  // namespace megatron
