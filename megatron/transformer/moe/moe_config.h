// A mixture of experts, resolved. Names are Megatron Core's TransformerConfig's without "moe_" and "moe_router_".
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/core/dtype.h"
#include "megatron/kernels/expert_capacity.h"
#include "megatron/kernels/router.h"
#include "megatron/transformer/config_rules.h"
#include "megatron/transformer/layer_pattern.h"

namespace megatron {

/// How tokens are spread over the experts. The first three add a loss: of all tokens of a micro-batch, of each
/// sequence, or with the counts of all micro-batches of a step so far, of all data-parallel ranks. The next two balance
/// the choice itself; kNone does neither.
enum class LoadBalancingType { kAuxLoss, kSeqAuxLoss, kGlobalAuxLoss, kSinkhorn, kQuantileBalancing, kNone };

/// Names as on the command line and in checkpoints, found by argument-dependent lookup (base/field.h).
constexpr auto names_of_enum(LoadBalancingType) {
  return std::to_array<std::pair<LoadBalancingType, std::string_view>>(
      {{LoadBalancingType::kAuxLoss, "aux_loss"},
       {LoadBalancingType::kSeqAuxLoss, "seq_aux_loss"},
       {LoadBalancingType::kGlobalAuxLoss, "global_aux_loss"},
       {LoadBalancingType::kSinkhorn, "sinkhorn"},
       {LoadBalancingType::kQuantileBalancing, "quantile_balancing"},
       {LoadBalancingType::kNone, "none"}});
}
namespace kernels {
constexpr auto names_of_enum(RouterScore) {
  return std::to_array<std::pair<RouterScore, std::string_view>>({{RouterScore::kSoftmax, "softmax"},
                                                                  {RouterScore::kSigmoid, "sigmoid"},
                                                                  {RouterScore::kSqrtSoftplus, "sqrtsoftplus"}});
}
constexpr auto names_of_enum(TokenDropPolicy) {
  return std::to_array<std::pair<TokenDropPolicy, std::string_view>>(
      {{TokenDropPolicy::kProbs, "probs"}, {TokenDropPolicy::kPosition, "position"}});
}
}  // namespace kernels

/// How tokens reach the ranks that have their experts. All-gather: every rank sees the tokens of all. The other two: a
/// rank sees those that its experts take, each once.
enum class TokenDispatcherType { kAllGather, kAllToAll, kFlex };

/// Names as on the command line and in checkpoints, found by argument-dependent lookup (base/field.h).
constexpr auto names_of_enum(TokenDispatcherType) {
  return std::to_array<std::pair<TokenDispatcherType, std::string_view>>(
      {{TokenDispatcherType::kAllGather, "allgather"},
       {TokenDispatcherType::kAllToAll, "alltoall"},
       {TokenDispatcherType::kFlex, "flex"}});
}

struct LoadBalancing {
  LoadBalancingType type = LoadBalancingType::kAuxLoss;
  double aux_loss_coeff = 0;  ///< of a loss
};

struct MoeConfig {
  int64_t num_experts = 0;
  /// Interval N: layer i, from 0, has experts if N divides i; list: entry 1 has experts. Others are dense.
  LayerPattern layer_freq{.interval = 1, .per_layer = {}};
  int64_t ffn_hidden_size = 0;                  ///< f of one expert
  int64_t shared_expert_intermediate_size = 0;  ///< f of all shared experts together; 0: there are none
  std::optional<int64_t> latent_size = {};      ///< routed experts work on hidden states of this size
  bool shared_expert_gate = false;              ///< their output times sigmoid(x w)
  bool shared_expert_overlap = false;           ///< computed while tokens are on their way to their experts; same bits
  kernels::RouterTopkOptions topk;              ///< which experts, and with which probability
  std::vector<LoadBalancing> load_balancing;    ///< empty: none
  std::optional<double> z_loss_coeff;
  std::optional<double> input_jitter_eps;  ///< in training, what the router sees is multiplied by 1 - eps to 1 + eps
  bool enable_expert_bias = false;         ///< with sigmoid and sqrt-softplus scores
  double bias_update_rate = 1e-3;
  double quantile_balancing_ema = 0.9;           ///< how much of its bias remains in a step
  DType router_dtype = DType::kFloat32;          ///< of logits and probabilities, at least that of the activations
  std::optional<double> expert_capacity_factor;  ///< none: no token is dropped
  kernels::TokenDropPolicy token_drop_policy = kernels::TokenDropPolicy::kProbs;
  bool pad_expert_input_to_capacity = false;
  int64_t pad_expert_input_to_multiple = 0;  ///< rows of an expert, for quantised matmuls; 0: as they come
  TokenDispatcherType token_dispatcher_type = TokenDispatcherType::kAllGather;
  /// Rows that a rank's experts have room for, as a multiple of those of balanced experts; none: for any routing.
  std::optional<double> expert_rank_capacity_factor;
  int64_t num_exact_rounds =
      1;                     ///< in which a step for which that was too few is repeated: each has room for any routing
  bool grouped_gemm = true;  ///< false: one expert after the other, the reference
  bool apply_probs_on_input = false;             ///< with topk 1: not on the activation
  std::optional<double> force_routing_bias_std;  ///< random logits for benchmarks; 0: balanced
  bool calculate_per_token_loss = false;         ///< losses are sums over tokens, divided by their number later
  bool per_layer_logging = false;                ///< count the tokens of each expert of each layer for the log

  bool balances_by(LoadBalancingType type) const;
  /// @param layer_number from 1
  bool has_experts(int64_t layer_number) const;
  /// @throw ConfigError listing every value that no layer can be built with.
  void validate() const;
  /// The same as rules of the whole network.
  void validate(ConfigRules& rules) const;
};

}  // namespace megatron
