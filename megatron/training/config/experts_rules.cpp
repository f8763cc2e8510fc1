// Rules of mixtures of experts, and the MoeConfig that follows from their flags. Source: Megatron's TransformerConfig.
#include <algorithm>

#include "megatron/training/config/rules.h"

namespace megatron {
namespace {

using kernels::RouterScore;

std::string_view name_of(LoadBalancingType type) {
  for (const auto& [enumerator, name] : names_of_enum(LoadBalancingType{}))
    if (enumerator == type) return name;
  return {};
}

void check_sizes(const PretrainConfig& config, Mistakes& mistakes) {
  const ExpertsConfig& experts = config.experts;
  const bool has_shared_experts = experts.shared_expert_intermediate_size.has_value();
  check_pattern(experts.layer_freq, "--moe-layer-freq", config.transformer.num_layers, mistakes);
  if (experts.layer_freq.interval == 0 &&
      std::ranges::find(experts.layer_freq.per_layer, 1) == experts.layer_freq.per_layer.end())
    mistakes.add({"--moe-layer-freq", "--num-experts"},
                 "--moe-layer-freq gives no layer experts: each of its {} entries is 0. Leave out --num-experts for a "
                 "dense model, or write 1 for the layers that shall have experts",
                 experts.layer_freq.per_layer.size());
  if (has_shared_experts && config.transformer.add_bias_linear)
    mistakes.add({"--moe-shared-expert-intermediate-size", "--disable-bias-linear"},
                 "--moe-shared-expert-intermediate-size {} needs --disable-bias-linear: shared experts have no biases",
                 *experts.shared_expert_intermediate_size);
  if (experts.shared_expert_overlap && has_shared_experts &&
      experts.token_dispatcher_type == TokenDispatcherType::kAllGather)
    mistakes.add({"--moe-shared-expert-overlap", "--moe-token-dispatcher-type"},
                 "--moe-shared-expert-overlap needs --moe-token-dispatcher-type alltoall or flex, not allgather");
  if (experts.shared_expert_gate && !has_shared_experts)
    mistakes.add({"--moe-shared-expert-gate", "--moe-shared-expert-intermediate-size"},
                 "--moe-shared-expert-gate needs --moe-shared-expert-intermediate-size: there is no shared expert");
}

void check_groups(const ExpertsConfig& experts, Mistakes& mistakes) {
  constexpr std::string_view kGroups = "--moe-router-num-groups", kBest = "--moe-router-group-topk";
  if (!experts.router_group_topk) return;
  const int64_t best = *experts.router_group_topk, num_experts = *experts.num_experts;
  if (!experts.router_num_groups) {
    mistakes.add({kBest, kGroups}, "{} {} needs {}: there are no groups to choose from", kBest, best, kGroups);
    return;
  }
  const int64_t groups = *experts.router_num_groups, topk = experts.router_topk;
  if (num_experts % groups != 0) {
    mistakes.add({"--num-experts", kGroups},
                 "--num-experts {} does not divide by {} {}: groups have as many experts each. Give a divisor of {}",
                 num_experts, kGroups, groups, num_experts);
    return;
  }
  if (experts.router_group_score_topk && *experts.router_group_score_topk > num_experts / groups)
    mistakes.add({"--moe-router-group-score-topk", kGroups},
                 "--moe-router-group-score-topk {} is above the {} experts of a group: give at most as many",
                 *experts.router_group_score_topk, num_experts / groups);
  if (best > groups)
    mistakes.add({kBest, kGroups}, "{} {} is above {} {}: a token cannot use more groups than there are", kBest, best,
                 kGroups, groups);
  else if (topk < best)
    mistakes.add({kBest, "--moe-router-topk"},
                 "{} {} is above --moe-router-topk {}: a token uses at least one expert of each of its groups", kBest,
                 best, topk);
  else if (topk > best * (num_experts / groups))
    mistakes.add({kBest, "--moe-router-topk"},
                 "--moe-router-topk {} is above the {} experts in {} {} of {} experts each: allow more groups", topk,
                 best * (num_experts / groups), kBest, best, num_experts / groups);
}

void check_router(const ExpertsConfig& experts, Mistakes& mistakes) {
  const int64_t num_experts = *experts.num_experts, topk = experts.router_topk;
  const bool is_softmax = experts.router_score_function == RouterScore::kSoftmax;
  if (topk > num_experts)
    mistakes.add({"--moe-router-topk", "--num-experts"},
                 "--moe-router-topk {} is above --num-experts {}: a token goes to as many different experts", topk,
                 num_experts);
  else
    check_groups(experts, mistakes);
  const bool is_sinkhorn = std::ranges::find(experts.router_load_balancing_type, LoadBalancingType::kSinkhorn) !=
                           experts.router_load_balancing_type.end();  // whose probability of one expert is a sigmoid
  if (topk == 1 && is_softmax && !experts.router_pre_softmax && !is_sinkhorn)
    mistakes.add({"--moe-router-topk", "--moe-router-pre-softmax"},
                 "--moe-router-topk 1 with softmax over the one chosen expert gives probability 1, so that the router "
                 "would learn nothing: give --moe-router-pre-softmax or --moe-router-score-function sigmoid");
  if (experts.router_enable_expert_bias && is_softmax)
    mistakes.add({"--moe-router-enable-expert-bias", "--moe-router-score-function"},
                 "--moe-router-enable-expert-bias needs --moe-router-score-function sigmoid or sqrtsoftplus, not "
                 "softmax");
  if (experts.router_force_load_balancing && experts.router_force_biased)
    mistakes.add({"--moe-router-force-load-balancing", "--moe-router-force-biased"},
                 "--moe-router-force-load-balancing and --moe-router-force-biased {} exclude each other: experts are "
                 "chosen evenly or not",
                 *experts.router_force_biased);
  if (experts.apply_probs_on_input && topk != 1)
    mistakes.add({"--moe-apply-probs-on-input", "--moe-router-topk"},
                 "--moe-apply-probs-on-input needs --moe-router-topk 1, not {}: one input has one probability", topk);
}

void check_balance(const ExpertsConfig& experts, Mistakes& mistakes) {
  constexpr std::string_view kTypes = "--moe-router-load-balancing-type", kCoeffs = "--moe-aux-loss-coeff";
  const std::vector<LoadBalancingType>& types = experts.router_load_balancing_type;
  if (types.size() != experts.aux_loss_coeff.size())
    mistakes.add({kTypes, kCoeffs},
                 "{} has {} values and {} has {}: each type needs its coefficient; 0 where there is no loss", kTypes,
                 types.size(), kCoeffs, experts.aux_loss_coeff.size());
  for (size_t i = 0; i < types.size(); ++i)
    if (std::find(types.begin(), types.begin() + static_cast<std::ptrdiff_t>(i), types[i]) !=
        types.begin() + static_cast<std::ptrdiff_t>(i))
      mistakes.add({kTypes}, "{} names {} twice", kTypes, name_of(types[i]));
  for (const LoadBalancingType type : {LoadBalancingType::kSinkhorn, LoadBalancingType::kQuantileBalancing}) {
    if (std::ranges::find(types, type) == types.end()) continue;
    if (types.size() > 1)
      mistakes.add({kTypes}, "{} {} excludes other types: it balances the choice itself", kTypes, name_of(type));
    if (std::ranges::any_of(experts.aux_loss_coeff, [](double coeff) { return coeff != 0; }))
      mistakes.add({kTypes, kCoeffs}, "{} does not go with {} {}, which adds no loss: leave {} out, or give 0", kCoeffs,
                   kTypes, name_of(type), kCoeffs);
    if (experts.expert_capacity_factor)
      mistakes.add({kTypes, "--moe-expert-capacity-factor"},
                   "--moe-expert-capacity-factor {} does not go with {} {}: choose aux_loss, seq_aux_loss, "
                   "global_aux_loss or none",
                   *experts.expert_capacity_factor, kTypes, name_of(type));
  }
  if (std::ranges::find(types, LoadBalancingType::kQuantileBalancing) == types.end()) return;
  if (experts.router_topk >= *experts.num_experts)
    mistakes.add({kTypes, "--moe-router-topk", "--num-experts"},
                 "{} quantile_balancing needs --moe-router-topk below --num-experts; both are {}", kTypes,
                 *experts.num_experts);
  if (experts.router_group_topk)
    mistakes.add({kTypes, "--moe-router-group-topk"},
                 "{} quantile_balancing does not go with --moe-router-group-topk: it balances all experts together",
                 kTypes);
}

void check_capacity(const ExpertsConfig& experts, Mistakes& mistakes) {
  constexpr std::string_view kCapacity = "--moe-expert-capacity-factor";
  if (experts.expert_capacity_factor == 0)
    mistakes.add({kCapacity}, "{} 0 leaves no expert a token: give a factor above 0, such as 1.25, or leave it out",
                 kCapacity);
  if (experts.pad_expert_input_to_capacity && !experts.expert_capacity_factor)
    mistakes.add({"--moe-pad-expert-input-to-capacity", kCapacity},
                 "--moe-pad-expert-input-to-capacity needs {}: there is no capacity to pad to", kCapacity);
}

/// A dense model has no other weights for a mixture of experts than those of its feed-forward.
void check_upcycling(const PretrainConfig& config, Mistakes& mistakes) {
  constexpr std::string_view kFlag = "--moe-use-upcycling", kSlices = "--moe-upcycling-granularity";
  const ExpertsConfig& experts = config.experts;
  const int64_t slices = experts.upcycling_granularity, width = config.model.ffn_hidden_size.value_or(0);
  if (!config.checkpoint.load && !config.checkpoint.pretrained_checkpoint)
    mistakes.add({kFlag, "--load"}, "{} needs --load or --pretrained-checkpoint with a dense model", kFlag);
  if (config.checkpoint.use_checkpoint_args)
    mistakes.add({kFlag, "--use-checkpoint-args"},
                 "{} and --use-checkpoint-args exclude each other: the checkpoint's arguments are of a dense model",
                 kFlag);
  if (*experts.num_experts % slices != 0)
    mistakes.add({kSlices, "--num-experts"}, "--num-experts {} does not divide by {} {}: give a divisor",
                 *experts.num_experts, kSlices, slices);
  if (experts.ffn_hidden_size != width / slices || width % slices != 0)
    mistakes.add({kSlices, "--moe-ffn-hidden-size", "--ffn-hidden-size"},
                 "--ffn-hidden-size {} is not {} {} times --moe-ffn-hidden-size {}: an expert has a slice of the dense "
                 "feed-forward",
                 width, kSlices, slices, experts.ffn_hidden_size.value_or(0));
  if (config.transformer.add_bias_linear)
    mistakes.add({kFlag, "--disable-bias-linear"},
                 "{} needs --disable-bias-linear: each expert of a token would add the bias of the dense feed-forward",
                 kFlag);
  if (experts.shared_expert_intermediate_size || experts.latent_size || experts.layer_freq.interval != 1)
    mistakes.add({kFlag, "--moe-shared-expert-intermediate-size", "--moe-latent-size", "--moe-layer-freq"},
                 "{} needs experts in every layer, without shared or latent ones: a dense model has no weights for "
                 "these",
                 kFlag);
}

MoeConfig moe_config_of(const PretrainConfig& config) {
  const ExpertsConfig& experts = config.experts;
  MoeConfig moe{.num_experts = *experts.num_experts,
                .layer_freq = experts.layer_freq,
                .ffn_hidden_size = experts.ffn_hidden_size.value_or(0),
                .shared_expert_intermediate_size = experts.shared_expert_intermediate_size.value_or(0),
                .latent_size = experts.latent_size,
                .shared_expert_gate = experts.shared_expert_gate,
                .shared_expert_overlap = experts.shared_expert_overlap,
                .topk = {.topk = experts.router_topk,
                         .score = experts.router_score_function,
                         .pre_softmax = experts.router_pre_softmax,
                         .scaling_factor = experts.router_topk_scaling_factor.value_or(1)},
                .z_loss_coeff = experts.z_loss_coeff,
                .input_jitter_eps = experts.input_jitter_eps,
                .enable_expert_bias = experts.router_enable_expert_bias,
                .bias_update_rate = experts.router_bias_update_rate,
                .quantile_balancing_ema = experts.router_quantile_balancing_ema,
                .router_dtype = experts.router_dtype == MoeRouterDType::kFloat64 ? DType::kFloat64 : DType::kFloat32,
                .expert_capacity_factor = experts.expert_capacity_factor,
                .token_drop_policy = experts.token_drop_policy,
                .pad_expert_input_to_capacity = experts.pad_expert_input_to_capacity,
                .token_dispatcher_type = experts.token_dispatcher_type,
                .expert_rank_capacity_factor = experts.expert_rank_capacity_factor,
                .apply_probs_on_input = experts.apply_probs_on_input,
                .force_routing_bias_std = experts.router_force_biased,
                .calculate_per_token_loss = config.training.calculate_per_token_loss,
                .per_layer_logging = experts.per_layer_logging};
  if (experts.router_force_load_balancing) moe.force_routing_bias_std = 0;
  if (experts.router_group_topk && experts.router_num_groups) {
    moe.topk.num_groups = *experts.router_num_groups;
    moe.topk.group_topk = *experts.router_group_topk;
    moe.topk.group_score_topk = experts.router_group_score_topk.value_or(0);
  }
  const size_t num_types = std::min(experts.router_load_balancing_type.size(), experts.aux_loss_coeff.size());
  for (size_t i = 0; i < num_types; ++i)
    moe.load_balancing.push_back(
        {.type = experts.router_load_balancing_type[i], .aux_loss_coeff = experts.aux_loss_coeff[i]});
  return moe;
}

}  // namespace

void resolve_experts(PretrainConfig& config, Mistakes& mistakes) {
  ExpertsConfig& experts = config.experts;
  if (experts.num_experts == 0) experts.num_experts.reset();
  if (experts.expert_capacity_factor && *experts.expert_capacity_factor < 0) experts.expert_capacity_factor.reset();
  if (!experts.num_experts) return;
  if (!experts.ffn_hidden_size && config.model.ffn_hidden_size)
    experts.ffn_hidden_size =
        *config.model.ffn_hidden_size / (experts.use_upcycling ? experts.upcycling_granularity : 1);
  check_sizes(config, mistakes);
  check_router(experts, mistakes);
  check_balance(experts, mistakes);
  check_capacity(experts, mistakes);
  if (experts.use_upcycling) check_upcycling(config, mistakes);
  config.transformer.moe = moe_config_of(config);
}

}  // namespace megatron
