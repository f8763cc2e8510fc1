#include "megatron/transformer/moe/moe_config.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"

namespace megatron {

bool MoeConfig::balances_by(LoadBalancingType type) const {
  return std::any_of(load_balancing.begin(), load_balancing.end(),
                     [type](const LoadBalancing& balancing) { return balancing.type == type; });
}

bool MoeConfig::has_experts(int64_t layer_number) const {
  if (layer_freq.interval > 0) return (layer_number - 1) % layer_freq.interval == 0;
  return layer_freq.per_layer.at(static_cast<size_t>(layer_number - 1)) != 0;
}

void MoeConfig::validate() const {
  ConfigRules rules;
  validate(rules);
  require<ConfigError>(rules.mistakes().empty(), "[MoeConfig] no layer has these values:\n  - {}",
                       joined(rules.mistakes(), "\n  - "));
}

void MoeConfig::validate(ConfigRules& rules) const {
  const int64_t groups = topk.num_groups, best = topk.group_topk;
  rules.rule(num_experts > 0, "num_experts is {}; it must be above 0", num_experts);
  rules.rule(ffn_hidden_size > 0, "ffn_hidden_size is {}; it must be above 0", ffn_hidden_size);
  rules.rule(topk.topk >= 1 && topk.topk <= num_experts, "topk {} is not between 1 and the {} experts", topk.topk,
             num_experts);
  rules.rule(topk.topk != 1 || topk.score != kernels::RouterScore::kSoftmax || topk.pre_softmax ||
                 balances_by(LoadBalancingType::kSinkhorn),  // which has a sigmoid for one expert
             "topk 1 with softmax over the chosen expert gives probability 1 and no gradient: set pre_softmax");
  rules.rule(
      groups == 0 || (groups > 0 && groups <= kernels::RouterTopkOptions::kMostGroups && num_experts % groups == 0),
      "{} experts do not divide into {} groups (at most {})", num_experts, groups,
      kernels::RouterTopkOptions::kMostGroups);
  rules.rule(
      groups == 0 || (best >= 1 && best <= groups && best <= topk.topk && topk.topk * groups <= best * num_experts),
      "topk {} experts cannot come from {} of {} groups of {} experts", topk.topk, best, groups,
      groups > 0 ? num_experts / groups : 0);
  rules.rule(topk.group_score_topk >= 0 && topk.group_score_topk * groups <= num_experts,
             "group_score_topk is {}; a group of {} experts has a score of 0 (the default) to all of them",
             topk.group_score_topk, groups > 0 ? num_experts / groups : num_experts);
  rules.rule(!enable_expert_bias || topk.score != kernels::RouterScore::kSoftmax,
             "expert_bias needs sigmoid or sqrt-softplus scores");
  rules.rule(
      !balances_by(LoadBalancingType::kQuantileBalancing) ||
          (load_balancing.size() == 1 && groups == 0 && topk.topk < num_experts),
      "quantile balancing goes neither with an auxiliary loss nor with groups, and needs topk below num_experts");
  rules.rule(pad_expert_input_to_multiple >= 0 && (pad_expert_input_to_multiple == 0 || !expert_capacity_factor),
             "pad_expert_input_to_multiple is {}; it must be 0 with a capacity, and not negative",
             pad_expert_input_to_multiple);
  rules.rule(!balances_by(LoadBalancingType::kSinkhorn) || (load_balancing.size() == 1 && !expert_capacity_factor),
             "sinkhorn goes neither with an auxiliary loss nor with a capacity");
  rules.rule(router_dtype == DType::kFloat32 || router_dtype == DType::kFloat64,
             "router_dtype is {}; it must be float32 or float64", name_of(router_dtype));
  rules.rule(!expert_capacity_factor || *expert_capacity_factor > 0, "expert_capacity_factor is {}; it must be above 0",
             expert_capacity_factor.value_or(0));
  rules.rule(!input_jitter_eps || *input_jitter_eps >= 0, "input_jitter_eps is {}; it must not be negative",
             input_jitter_eps.value_or(0));
  rules.rule(expert_capacity_factor || !pad_expert_input_to_capacity,
             "pad_expert_input_to_capacity needs expert_capacity_factor");
  rules.rule(!apply_probs_on_input || topk.topk == 1, "apply_probs_on_input needs topk 1, not {}", topk.topk);
  rules.rule(shared_expert_intermediate_size > 0 || !shared_expert_gate,
             "shared_expert_gate needs shared_expert_intermediate_size");
  rules.rule(!latent_size || *latent_size > 0, "latent_size is {}; it must be above 0", latent_size.value_or(0));
}

}  // namespace megatron
