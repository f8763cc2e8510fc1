#include "megatron/training/planning/theoretical_flops.h"

#include "megatron/transformer/transformer_config.h"

namespace megatron {
namespace {

constexpr double kForwardAndBackward = 3.0;
constexpr double kPerMultiplyAdd = 2.0;

// Multiply-adds per token of all feed-forwards.
double feed_forward_products(const FlopsSizes& sizes) {
  const auto h = static_cast<double>(sizes.hidden_size);
  const double matrices = sizes.swiglu ? 3 : 2;
  const double dense = static_cast<double>(sizes.ffn_hidden_size) * matrices;
  double routed = static_cast<double>(sizes.moe_ffn_hidden_size * sizes.moe_router_topk) * matrices;
  if (sizes.moe_latent_size) {
    const auto latent = static_cast<double>(*sizes.moe_latent_size);
    routed = routed * latent / h + 2 * latent;
  }
  const double shared = static_cast<double>(sizes.moe_shared_expert_intermediate_size) * matrices;
  return h * (dense * static_cast<double>(sizes.num_dense_layers) +
              (routed + shared) * static_cast<double>(sizes.num_moe_layers));
}

struct AttentionProducts {
  double per_token;   // projections
  double per_square;  // scores and values: per squared length, causal half
};

AttentionProducts latent_attention_products(const FlopsSizes& sizes, const LatentAttentionSizes& latent) {
  const auto h = static_cast<double>(sizes.hidden_size);
  const auto heads = static_cast<double>(sizes.num_attention_heads);
  const auto qk = static_cast<double>(latent.qk_head_dim);
  const auto pe = static_cast<double>(latent.qk_pos_emb_head_dim);
  const auto v = static_cast<double>(latent.v_head_dim);
  const auto kv_rank = static_cast<double>(latent.kv_lora_rank);
  double query = h * heads * (qk + pe);
  if (latent.q_lora_rank) query = static_cast<double>(*latent.q_lora_rank) * (h + heads * (qk + pe) + 1);
  const double key_value = kv_rank * (h + heads * (qk + v) + 1) + h * pe;
  return {query + key_value + heads * v * h, heads * (qk + pe) / 2 + heads * v / 2};
}

AttentionProducts attention_products(const FlopsSizes& sizes) {
  if (sizes.latent_attention) return latent_attention_products(sizes, *sizes.latent_attention);
  const auto h = static_cast<double>(sizes.hidden_size);
  const auto query = static_cast<double>(sizes.kv_channels * sizes.num_attention_heads);
  const auto key = static_cast<double>(sizes.kv_channels * sizes.num_query_groups);
  const double gate = sizes.attention_output_gate ? query : 0;
  return {h * (query + 2 * key + gate) + query * h, query};
}

}  // namespace

FlopsSizes flops_sizes_of(const TransformerConfig& config) {
  FlopsSizes sizes;
  sizes.hidden_size = config.hidden_size;
  sizes.num_attention_heads = config.num_attention_heads;
  sizes.num_query_groups = config.num_query_groups;
  sizes.kv_channels = config.kv_channels;
  sizes.ffn_hidden_size = config.ffn_hidden_size;
  sizes.padded_vocab_size = config.padded_vocab_size;
  sizes.num_dense_layers = config.num_layers;
  sizes.swiglu = config.gated_linear_unit && config.activation_func == ActivationFunc::kSilu;
  return sizes;
}

double theoretical_flops(const FlopsSizes& sizes, double num_tokens, double sum_squared_lengths) {
  const auto h = static_cast<double>(sizes.hidden_size);
  const auto mtp = static_cast<double>(sizes.mtp_num_layers);
  const auto layers = static_cast<double>(sizes.num_dense_layers + sizes.num_moe_layers);
  const AttentionProducts attention = attention_products(sizes);
  const double mtp_projections = mtp * (3 * h + 2 * h * h);
  const double logits = h * static_cast<double>(sizes.padded_vocab_size) * (mtp + 1);
  const double per_token = feed_forward_products(sizes) + attention.per_token * layers + mtp_projections + logits;
  return kForwardAndBackward * kPerMultiplyAdd *
         (num_tokens * per_token + sum_squared_lengths * attention.per_square * layers);
}

double theoretical_flops(const FlopsSizes& sizes, int64_t batch_size, int64_t seq_length) {
  const auto batch = static_cast<double>(batch_size);
  const auto s = static_cast<double>(seq_length);
  return theoretical_flops(sizes, batch * s, batch * s * s);
}

LayerCosts layer_costs_of(const FlopsSizes& sizes, int64_t seq_length) {
  FlopsSizes without_head = sizes;
  without_head.padded_vocab_size = 0;
  const auto num_layers = static_cast<double>(sizes.num_dense_layers + sizes.num_moe_layers);
  const double layers = theoretical_flops(without_head, 1, seq_length);
  if (layers <= 0) return {};
  const double head = theoretical_flops(sizes, 1, seq_length) - layers;
  return {.embedding = 0, .layer = 1, .head = head / (layers / num_layers)};
}

}  // namespace megatron
