// The mixture of experts in golden configurations of Megatron Core.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "megatron/transformer/moe/moe_config.h"

namespace megatron::testing {

/// The fields moe_* and num_moe_experts of a TransformerConfig, which are taken out of it; moe_layer_freq stays.
/// @throw DataError for a field that is not known, so that nothing is passed over.
inline MoeConfig take_moe_config(nlohmann::json& config) {
  MoeConfig moe;
  const auto take = [&](const char* name, auto& target) {
    if (config.contains(name)) target = config[name].get<std::remove_reference_t<decltype(target)>>();
    config.erase(name);
  };
  const auto take_optional = [&](const char* name, std::optional<double>& target) {
    if (config.contains(name)) target = config[name].get<double>();
    config.erase(name);
  };
  take("num_moe_experts", moe.num_experts);
  take("moe_ffn_hidden_size", moe.ffn_hidden_size);
  take("moe_shared_expert_intermediate_size", moe.shared_expert_intermediate_size);
  take("moe_shared_expert_gate", moe.shared_expert_gate);
  take("moe_router_topk", moe.topk.topk);
  take("moe_router_pre_softmax", moe.topk.pre_softmax);
  take("moe_router_num_groups", moe.topk.num_groups);
  take("moe_router_group_topk", moe.topk.group_topk);
  take("moe_router_topk_scaling_factor", moe.topk.scaling_factor);
  take("moe_router_enable_expert_bias", moe.enable_expert_bias);
  take_optional("moe_z_loss_coeff", moe.z_loss_coeff);
  take_optional("moe_expert_capacity_factor", moe.expert_capacity_factor);
  take("moe_pad_expert_input_to_capacity", moe.pad_expert_input_to_capacity);
  take("calculate_per_token_loss", moe.calculate_per_token_loss);
  std::string score = "softmax", policy = "probs", router_dtype = "fp32", dispatcher;
  take("moe_router_score_function", score);
  take("moe_token_drop_policy", policy);
  take("moe_router_dtype", router_dtype);
  take("moe_token_dispatcher_type", dispatcher);  // one rank: all give the same
  if (score == "sigmoid") moe.topk.score = kernels::RouterScore::kSigmoid;
  if (policy == "position") moe.token_drop_policy = kernels::TokenDropPolicy::kPosition;
  if (router_dtype == "fp64") moe.router_dtype = DType::kFloat64;

  const auto as_list = [&](const char* name) {
    nlohmann::json list = config.value(name, nlohmann::json::array());
    config.erase(name);
    return list.is_array() ? list : nlohmann::json::array({list});
  };
  const nlohmann::json types = as_list("moe_router_load_balancing_type"), coeffs = as_list("moe_aux_loss_coeff");
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string type = types[i];
    if (type == "none") continue;
    moe.load_balancing.push_back({type == "aux_loss"          ? LoadBalancingType::kAuxLoss
                                  : type == "seq_aux_loss"    ? LoadBalancingType::kSeqAuxLoss
                                  : type == "global_aux_loss" ? LoadBalancingType::kGlobalAuxLoss
                                                              : LoadBalancingType::kSinkhorn,
                                  coeffs[i].get<double>()});
  }
  for (const auto& [name, value] : config.items())
    require<DataError>(!name.starts_with("moe_") || name == "moe_layer_freq", "the test does not know {} = {}", name,
                       value.dump());
  return moe;
}

}  // namespace megatron::testing
