// Flags of mixtures of experts, as they are given. MoeConfig is what a layer is built from.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/transformer/moe/moe_config.h"

namespace megatron {

/// kOfActivations has no name, as it means that the flag is absent.
enum class MoeRouterDType { kOfActivations, kFloat32, kFloat64 };
constexpr auto names_of_enum(MoeRouterDType) {
  return std::to_array<std::pair<MoeRouterDType, std::string_view>>(
      {{MoeRouterDType::kFloat32, "fp32"}, {MoeRouterDType::kFloat64, "fp64"}});
}

/// Names are Megatron's without "moe_". After resolve_experts() every optional that has a derived value holds it.
struct ExpertsConfig {
  std::optional<int64_t> num_experts;  ///< none: every layer is dense
  LayerPattern layer_freq{.interval = 1, .per_layer = {}};
  std::optional<int64_t> ffn_hidden_size;
  std::optional<int64_t> shared_expert_intermediate_size;
  bool shared_expert_gate = false;
  bool shared_expert_overlap = false;
  std::optional<int64_t> latent_size;

  int64_t router_topk = 2;
  kernels::RouterScore router_score_function = kernels::RouterScore::kSoftmax;
  bool router_pre_softmax = false;
  std::optional<double> router_topk_scaling_factor;
  std::optional<int64_t> router_num_groups;
  std::optional<int64_t> router_group_topk;
  std::optional<int64_t> router_group_score_topk;  ///< none: router_topk / router_group_topk, rounded down
  MoeRouterDType router_dtype = MoeRouterDType::kOfActivations;

  std::vector<LoadBalancingType> router_load_balancing_type = {LoadBalancingType::kAuxLoss};
  std::vector<double> aux_loss_coeff = {0};  ///< one for each load-balancing type
  std::optional<double> z_loss_coeff;
  std::optional<double> input_jitter_eps;
  bool router_enable_expert_bias = false;
  double router_bias_update_rate = 1e-3;
  double router_quantile_balancing_ema = 0;
  bool router_force_load_balancing = false;
  std::optional<double> router_force_biased;

  std::optional<double> expert_capacity_factor;  ///< a negative one means none
  bool pad_expert_input_to_capacity = false;
  kernels::TokenDropPolicy token_drop_policy = kernels::TokenDropPolicy::kProbs;
  bool apply_probs_on_input = false;

  TokenDispatcherType token_dispatcher_type = TokenDispatcherType::kAllGather;
  std::optional<double> expert_rank_capacity_factor;

  bool use_upcycling = false;
  int64_t upcycling_granularity = 1;

  bool layer_recompute = false;  ///< old name of --recompute-modules moe
  bool per_layer_logging = false;

  bool grouped_gemm = false;  ///< this and what follows are accepted without effect
  bool permute_fusion = false;
  bool router_fusion = false;
  bool enable_routing_replay = false;
  std::string flex_dispatcher_backend = "deepep";
};

}  // namespace megatron
