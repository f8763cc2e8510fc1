#include "megatron/transformer/moe/moe_config.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "megatron/base/error.h"

namespace megatron::testing {
namespace {

MoeConfig valid() {
  MoeConfig config;
  config.num_experts = 8;
  config.ffn_hidden_size = 4;
  return config;
}

TEST(MoeConfig, RejectsEachValueThatNoLayerHas) {
  EXPECT_NO_THROW(valid().validate());
  const std::pair<const char*, std::function<void(MoeConfig&)>> wrong[] = {
      {"num_experts is 0", [](MoeConfig& c) { c.num_experts = 0; }},
      {"ffn_hidden_size is 0", [](MoeConfig& c) { c.ffn_hidden_size = 0; }},
      {"latent_size is 0", [](MoeConfig& c) { c.latent_size = 0; }},
      {"topk 9 is not between 1 and the 8 experts", [](MoeConfig& c) { c.topk.topk = 9; }},
      {"set pre_softmax", [](MoeConfig& c) { c.topk.topk = 1; }},
      {"8 experts do not divide into 3 groups", [](MoeConfig& c) { c.topk.num_groups = 3, c.topk.group_topk = 1; }},
      {"topk 2 experts cannot come from 3 of 4 groups",
       [](MoeConfig& c) { c.topk.num_groups = 4, c.topk.group_topk = 3; }},
      {"group_score_topk is 3; a group of 2 experts",
       [](MoeConfig& c) { c.topk.num_groups = 4, c.topk.group_topk = 2, c.topk.group_score_topk = 3; }},
      {"expert_bias needs sigmoid", [](MoeConfig& c) { c.enable_expert_bias = true; }},
      {"sinkhorn goes neither",
       [](MoeConfig& c) {
         c.load_balancing = {{LoadBalancingType::kSinkhorn, 0}}, c.expert_capacity_factor = 1;
       }},
      {"router_dtype is bfloat16", [](MoeConfig& c) { c.router_dtype = DType::kBFloat16; }},
      {"expert_capacity_factor is 0", [](MoeConfig& c) { c.expert_capacity_factor = 0; }},
      {"pad_expert_input_to_capacity needs", [](MoeConfig& c) { c.pad_expert_input_to_capacity = true; }},
      {"apply_probs_on_input needs topk 1", [](MoeConfig& c) { c.apply_probs_on_input = true; }},
      {"shared_expert_gate needs", [](MoeConfig& c) { c.shared_expert_gate = true; }}};
  for (const auto& [text, change] : wrong) {
    MoeConfig config = valid();
    change(config);
    try {
      config.validate();
      ADD_FAILURE() << "accepted: " << text;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }
}

TEST(MoeConfig, TakesOneExpertBySoftmaxWithSinkhornWhichHasASigmoidForIt) {
  MoeConfig config = valid();
  config.topk.topk = 1;
  config.load_balancing = {{LoadBalancingType::kSinkhorn, 0}};
  EXPECT_NO_THROW(config.validate());
}

}  // namespace
}  // namespace megatron::testing
