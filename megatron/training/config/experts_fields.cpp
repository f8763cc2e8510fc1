// Mixtures of experts.
#include <algorithm>

#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

/// Megatron keeps a list of one value as the value.
template <class T>
void keep_single_values(Field& field, std::vector<T>& values) {
  using Single = field_detail::Conversion<T>;
  using List = field_detail::Conversion<std::vector<T>>;
  field.get = [&values] { return values.size() == 1 ? Single::to(values[0]) : List::to(values); };
  field.set = [&values](const FieldValue& value) {
    const bool is_single = std::holds_alternative<std::string>(value) || std::holds_alternative<double>(value) ||
                           std::holds_alternative<int64_t>(value);
    if (is_single)
      values = {Single::from(value)};
    else
      values = List::from(value);
  };
}

bool balances_by(const ExpertsConfig& experts, LoadBalancingType type) {
  const std::vector<LoadBalancingType>& types = experts.router_load_balancing_type;
  return std::ranges::find(types, type) != types.end();
}

constexpr const char* kScores = "--num-experts and another --moe-router-load-balancing-type than sinkhorn";

/// Says whether experts are chosen by scores. Sinkhorn's choice has its own probabilities, as in Megatron.
FieldCondition chooses_by_scores(const ExpertsConfig& experts, const FieldCondition& has_experts) {
  return [&experts, has_experts] { return has_experts() && !balances_by(experts, LoadBalancingType::kSinkhorn); };
}

/// Words of a command line that trains a small mixture of experts.
std::string such_as(std::string_view words) { return fmt::format("--num-experts 4 {}", words); }

void describe_sizes(FieldTable& table, PretrainConfig& config, const FieldCondition& has_experts) {
  ExpertsConfig& experts = config.experts;
  table.begin_group(
      "Mixture of experts",
      "Several feed-forwards (experts) of which a router chooses --moe-router-topk for each token. Mixtral: "
      "--num-experts 8 --moe-router-topk 2 --moe-aux-loss-coeff 1e-2. DeepSeek-V3: --moe-router-score-function "
      "sigmoid --moe-router-enable-expert-bias --moe-shared-expert-intermediate-size F and more.");
  table.add("num_experts", experts.num_experts, "experts of each layer that has some; 0: every layer is dense")
      .at_least(0)
      .gives_weights_meaning()
      .also_stored_as("num_moe_experts")
      .known_as("num-moe-experts n-experts n-routed-experts num-local-experts moe-num-experts");
  add_pattern(table, "moe_layer_freq", experts.layer_freq,
              "layers with experts: N, every N-th layer from the first on; or a list with 1 for each of them, such as "
              "\"[0]*1+[1]*3\"")
      .gives_weights_meaning()
      .needs("--num-experts", has_experts)
      .such_as(such_as("--moe-layer-freq 2"));
  table.add("moe_ffn_hidden_size", experts.ffn_hidden_size, "width of the feed-forward of one expert")
      .by_default("--ffn-hidden-size; with --moe-use-upcycling divided by the granularity")
      .at_least(1)
      .gives_weights_meaning()
      .needs("--num-experts", has_experts)
      .known_as("moe-intermediate-size expert-ffn-size")
      .such_as(such_as("--moe-ffn-hidden-size 64"));
  table
      .add("moe_shared_expert_intermediate_size", experts.shared_expert_intermediate_size,
           "width of a feed-forward that every token passes beside its experts: that of all shared experts together")
      .at_least(1)
      .gives_weights_meaning()
      .needs("--num-experts", has_experts)
      .such_as(such_as("--disable-bias-linear --moe-shared-expert-intermediate-size 64"));
  table
      .add("moe_shared_expert_gate", experts.shared_expert_gate,
           "multiply the output of the shared experts by sigmoid(x w); needs --moe-shared-expert-intermediate-size")
      .gives_weights_meaning()
      .needs("--num-experts", has_experts)
      .such_as(such_as("--disable-bias-linear --moe-shared-expert-intermediate-size 64 --moe-shared-expert-gate"));
  table
      .add("moe_latent_size", experts.latent_size,
           "project tokens down to this width before the routed experts, and up again behind them")
      .at_least(1)
      .gives_weights_meaning()
      .needs("--num-experts", has_experts)
      .such_as(such_as("--moe-latent-size 32"));
}

void describe_router(FieldTable& table, PretrainConfig& config, const FieldCondition& has_experts) {
  ExpertsConfig& experts = config.experts;
  const FieldCondition by_scores = chooses_by_scores(experts, has_experts);
  table.begin_group("Router of a mixture of experts", "Which experts a token goes to, and with which probability.");
  table.add("moe_router_topk", experts.router_topk, "experts of each token")
      .at_least(1)
      .gives_weights_meaning()
      .needs("--num-experts", has_experts)
      .known_as("experts-per-token num-experts-per-tok top-k topk moe-topk moe-top-k")
      .such_as(such_as("--moe-router-topk 3"));
  table
      .add("moe_router_score_function", experts.router_score_function,
           "what makes a probability of a logit; sigmoid and sqrtsoftplus are divided by their sum over the chosen "
           "experts")
      .gives_weights_meaning()
      .needs(kScores, by_scores)
      .such_as(such_as("--moe-router-score-function sigmoid"));
  table
      .add("moe_router_pre_softmax", experts.router_pre_softmax,
           "softmax over all experts before the choice, not over the chosen ones after it")
      .gives_weights_meaning()
      .needs("--num-experts and --moe-router-score-function softmax",
             [&experts, by_scores] {
               return by_scores() && experts.router_score_function == kernels::RouterScore::kSoftmax;
             })
      .such_as(such_as("--moe-router-pre-softmax"));
  table.add("moe_router_topk_scaling_factor", experts.router_topk_scaling_factor, "multiplies the probabilities")
      .above(0)
      .gives_weights_meaning()
      .needs(kScores, by_scores)
      .such_as(such_as("--moe-router-topk-scaling-factor 2.5"));
  table
      .add("moe_router_num_groups", experts.router_num_groups,
           "groups of experts, of which a token uses --moe-router-group-topk; experts of a group are neighbours")
      .at_least(1)
      .at_most(static_cast<double>(kernels::RouterTopkOptions::kMostGroups))
      .gives_weights_meaning()
      .needs("--num-experts and --moe-router-group-topk",
             [&experts, by_scores] { return by_scores() && experts.router_group_topk.has_value(); })
      .such_as(such_as("--moe-router-num-groups 2 --moe-router-group-topk 1"));
  table.add("moe_router_group_topk", experts.router_group_topk, "groups of experts that a token may use")
      .at_least(1)
      .gives_weights_meaning()
      .needs(kScores, by_scores)
      .such_as(such_as("--moe-router-num-groups 2 --moe-router-group-topk 1"));
  table
      .add("moe_router_group_score_topk", experts.router_group_score_topk,
           "a group is as good as the sum of so many of its largest scores (megatron.cpp only)")
      .by_default("--moe-router-topk / --moe-router-group-topk, rounded down")
      .at_least(1)
      .gives_weights_meaning()
      .needs("--num-experts and --moe-router-group-topk",
             [&experts, by_scores] { return by_scores() && experts.router_group_topk.has_value(); })
      .such_as(such_as("--moe-router-num-groups 2 --moe-router-group-topk 1 --moe-router-group-score-topk 1"));
  table.add("moe_router_dtype", experts.router_dtype, "of logits and probabilities")
      .by_default("fp32; with --fp64 fp64")
      .needs("--num-experts", has_experts)
      .differs({.megatron = "computes the router's logits in the precision of the activations without it",
                .ours = "computes them in fp32 at least",
                .in_force =
                    [&config] {
                      return config.transformer.moe && size_of(config.transformer.params_dtype) < 4 &&
                             config.experts.router_dtype == MoeRouterDType::kOfActivations;
                    }})
      .such_as(such_as("--moe-router-dtype fp64"));
}

void describe_balance(FieldTable& table, PretrainConfig& config, const FieldCondition& has_experts) {
  ExpertsConfig& experts = config.experts;
  table.begin_group("Balance of experts",
                    "Without balance a router may send all tokens to few experts. The log has the auxiliary losses "
                    "without their coefficients; 1 is perfect balance of the first three types.");
  Field& types = table.add("moe_router_load_balancing_type", experts.router_load_balancing_type,
                           "how tokens are spread, one or more: a loss over a micro-batch, over each sequence, or over "
                           "the step so far; or Sinkhorn's or quantile-balanced choice");
  keep_single_values(types, experts.router_load_balancing_type);
  types.needs("--num-experts", has_experts)
      .such_as(such_as("--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.01"));
  Field& coeffs =
      table.add("moe_aux_loss_coeff", experts.aux_loss_coeff, "weight of each auxiliary loss; 1e-2 is a usual one");
  keep_single_values(coeffs, experts.aux_loss_coeff);
  coeffs.at_least(0)
      .needs("--num-experts and a loss among --moe-router-load-balancing-type",
             [&experts, has_experts] {
               return has_experts() && (balances_by(experts, LoadBalancingType::kAuxLoss) ||
                                        balances_by(experts, LoadBalancingType::kSeqAuxLoss) ||
                                        balances_by(experts, LoadBalancingType::kGlobalAuxLoss));
             })
      .known_as("aux-loss-coeff router-aux-loss-coef moe-aux-loss-coef")
      .such_as(such_as("--moe-aux-loss-coeff 0.01"));
  table.add("moe_z_loss_coeff", experts.z_loss_coeff, "weight of a loss that keeps logits small; 1e-3 is a usual one")
      .at_least(0)
      .needs("--num-experts", has_experts)
      .such_as(such_as("--moe-z-loss-coeff 1e-3"));
  table
      .add("moe_input_jitter_eps", experts.input_jitter_eps,
           "in training, multiply each number that the router sees by a random factor of 1 - EPS to 1 + EPS")
      .at_least(0)
      .needs("--num-experts", has_experts)
      .differs({.megatron = "--moe-input-jitter-eps changes the routing of evaluation too",
                .ours = "in training alone, and the factors are the same on every layout",
                .in_force = [&experts, has_experts] { return has_experts() && experts.input_jitter_eps.has_value(); }})
      .such_as(such_as("--moe-input-jitter-eps 1e-2"));
  table
      .add("moe_router_enable_expert_bias", experts.router_enable_expert_bias,
           "balance without a loss: a bias of each expert, for the choice alone, moves after each step against its "
           "load")
      .gives_weights_meaning()
      .needs("--num-experts and another --moe-router-load-balancing-type than sinkhorn and quantile_balancing",
             [&experts, has_experts] {
               return has_experts() && !balances_by(experts, LoadBalancingType::kSinkhorn) &&
                      !balances_by(experts, LoadBalancingType::kQuantileBalancing);
             })
      .such_as(such_as("--moe-router-score-function sigmoid --moe-router-enable-expert-bias"));
  table.add("moe_router_bias_update_rate", experts.router_bias_update_rate, "by how much it moves")
      .at_least(0)
      .needs("--moe-router-enable-expert-bias",
             [&experts, has_experts] { return has_experts() && experts.router_enable_expert_bias; })
      .such_as(such_as("--moe-router-score-function sigmoid --moe-router-enable-expert-bias "
                       "--moe-router-bias-update-rate 1e-2"));
  table
      .add("moe_router_quantile_balancing_ema", experts.router_quantile_balancing_ema,
           "how much of the old values quantile_balancing keeps in a step")
      .at_least(0)
      .below(1)
      .needs("--moe-router-load-balancing-type quantile_balancing",
             [&config] {
               return config.transformer.moe &&
                      config.transformer.moe->balances_by(LoadBalancingType::kQuantileBalancing);
             })
      .such_as(such_as("--moe-router-load-balancing-type quantile_balancing --moe-router-quantile-balancing-ema 0.9"));
  table
      .add("moe_router_force_load_balancing", experts.router_force_load_balancing,
           "for benchmarks: choose experts at random")
      .needs("--num-experts", has_experts)
      .such_as(such_as("--moe-router-force-load-balancing"));
  table
      .add("moe_router_force_biased", experts.router_force_biased,
           "for benchmarks: choose experts at random, some more often; the deviation of their biases")
      .at_least(0)
      .needs("--num-experts", has_experts)
      .such_as(such_as("--moe-router-force-biased 0.5"));
}

void describe_dispatch(FieldTable& table, PretrainConfig& config, const FieldCondition& has_experts) {
  ExpertsConfig& experts = config.experts;
  const FieldCondition is_shared = [&config, has_experts] { return has_experts() && config.parallel.shares_experts(); };
  const auto uses = [&experts, is_shared](TokenDispatcherType type) {
    return [&experts, is_shared, type] { return is_shared() && experts.token_dispatcher_type == type; };
  };
  const FieldCondition is_bounded = [&config, &experts, has_experts] {
    return has_experts() && config.parallel.expert_model_parallel_size > 1 &&
           experts.expert_rank_capacity_factor.has_value();
  };
  table
      .add(
          "moe_token_dispatcher_type", experts.token_dispatcher_type,
          "how tokens reach the ranks that have their experts: every rank gets the tokens of all (allgather), or those "
          "that its experts take, each once (alltoall and flex, which are the same)")
      .needs("--expert-model-parallel-size or --expert-tensor-parallel-size above 1", is_shared)
      .differs({.megatron = "--moe-token-dispatcher-type alltoall sends a token once for each of its experts",
                .ours = "sends it once to each rank that has experts of it",
                .in_force = uses(TokenDispatcherType::kAllToAll)})
      .differs({.megatron = "--moe-token-dispatcher-type flex needs the library DeepEP, HybridEP or NCCL EP",
                .ours = "the same as alltoall, by the collectives of every backend",
                .in_force = uses(TokenDispatcherType::kFlex)})
      .known_as("token-dispatcher moe-dispatcher dispatcher-type")
      .such_as(such_as("--expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall"));
  table
      .add(
          "moe_shared_expert_overlap", experts.shared_expert_overlap,
          "compute the shared experts while tokens are on their way to the ranks of their experts, and their gradients "
          "while those of the tokens are; no bit depends on it. Needs --moe-token-dispatcher-type alltoall or flex")
      .needs(
          "--moe-shared-expert-intermediate-size, and --expert-model-parallel-size or --expert-tensor-parallel-size "
          "above 1",
          [&experts, is_shared] { return is_shared() && experts.shared_expert_intermediate_size.has_value(); })
      .differs({.megatron = "--moe-shared-expert-overlap changes the gradients by rounding, and does not go with "
                            "--recompute-modules shared_experts",
                .ours = "changes no bit, and goes with it",
                .in_force = [&experts, is_shared] { return is_shared() && experts.shared_expert_overlap; }})
      .such_as(such_as("--disable-bias-linear --moe-shared-expert-intermediate-size 64 --expert-model-parallel-size 2 "
                       "--moe-token-dispatcher-type alltoall --moe-shared-expert-overlap"));
  table
      .add(
          "moe_expert_rank_capacity_factor", experts.expert_rank_capacity_factor,
          "a rank has room for this factor times the tokens that balanced experts would get; a step with more tokens "
          "is computed again, exactly. Without it there is room for any tokens, or on GPUs that are too small for that "
          "the largest factor that fits")
      .above(0)
      .needs("--expert-model-parallel-size above 1",
             [&config, has_experts] { return has_experts() && config.parallel.expert_model_parallel_size > 1; })
      .cannot_run_where(
          [&config, is_bounded] { return is_bounded() && config.parallel.num_distributed_optimizer_instances > 1; },
          "--moe-expert-rank-capacity-factor with --num-distributed-optimizer-instances above 1: an instance does not "
          "learn that there was no room in another one. Leave out one of them")
      .cannot_run_where([&config, is_bounded] { return is_bounded() && config.cuda_graph.records(); },
                        "--moe-expert-rank-capacity-factor with --cuda-graph-impl: a recorded step cannot be computed "
                        "again with more "
                        "room. Leave out one of them")
      .differs({.megatron = "--moe-expert-rank-capacity-factor drops tokens for which there is no room",
                .ours = "drops none: it computes the step again with room for all",
                .in_force = is_bounded})
      .such_as(such_as("--expert-model-parallel-size 2 --moe-expert-rank-capacity-factor 1.5"));
}

void describe_rest(FieldTable& table, PretrainConfig& config, const FieldCondition& has_experts) {
  ExpertsConfig& experts = config.experts;
  table.begin_group("Capacity and computation of experts", "Without a capacity no token is dropped.");
  table
      .add("moe_expert_capacity_factor", experts.expert_capacity_factor,
           "an expert takes at most this factor times its equal part of a micro-batch's tokens; negative: all")
      .needs("--num-experts", has_experts)
      .such_as(such_as("--moe-expert-capacity-factor 1.5"));
  table
      .add("moe_pad_expert_input_to_capacity", experts.pad_expert_input_to_capacity,
           "give each expert as many tokens as its capacity; needs --moe-expert-capacity-factor")
      .needs("--num-experts", has_experts)
      .such_as(such_as("--moe-expert-capacity-factor 1.5 --moe-pad-expert-input-to-capacity"));
  table
      .add("moe_token_drop_policy", experts.token_drop_policy,
           "which tokens an expert keeps: the most probable ones, or the first ones")
      .needs("--moe-expert-capacity-factor",
             [&experts, has_experts] { return has_experts() && experts.expert_capacity_factor.has_value(); })
      .such_as(such_as("--moe-expert-capacity-factor 1.5 --moe-token-drop-policy position"));
  table
      .add("moe_apply_probs_on_input", experts.apply_probs_on_input,
           "multiply the input of an expert by the probability, not its activation; needs --moe-router-topk 1")
      .gives_weights_meaning()
      .needs("--num-experts", has_experts)
      .such_as(such_as("--moe-router-topk 1 --moe-router-pre-softmax --moe-apply-probs-on-input"));
  describe_dispatch(table, config, has_experts);
  table.add("moe_layer_recompute", experts.layer_recompute, "the same as --recompute-modules moe")
      .needs("--num-experts and --recompute-granularity selective",
             [&config, has_experts] {
               return has_experts() && config.transformer.recompute_granularity == RecomputeGranularity::kSelective;
             })
      .such_as(such_as("--recompute-granularity selective --moe-layer-recompute"));
  table
      .add("moe_use_upcycling", experts.use_upcycling,
           "load a dense model: its feed-forward becomes that of each expert, and training begins with iteration 0")
      .for_whole_runs()
      .needs("--num-experts", has_experts)
      .differs({.megatron = "--moe-use-upcycling saves the mixture of experts to --save and begins from there",
                .ours = "begins at once",
                .in_force = [&experts, has_experts] { return has_experts() && experts.use_upcycling; }})
      .such_as(such_as("--disable-bias-linear --load dense --moe-use-upcycling"));
  table
      .add("moe_upcycling_granularity", experts.upcycling_granularity,
           "how many experts together are a dense feed-forward, each with a slice of its width")
      .at_least(1)
      .for_whole_runs()
      .needs("--moe-use-upcycling", [&experts, has_experts] { return has_experts() && experts.use_upcycling; })
      .such_as(such_as("--disable-bias-linear --load dense --moe-use-upcycling --moe-upcycling-granularity 2"));
  table
      .add("moe_per_layer_logging", experts.per_layer_logging,
           "write the auxiliary losses and the loads of experts of each layer to JSON lines, TensorBoard and W&B")
      .for_whole_runs()
      .needs("--num-experts", has_experts)
      .such_as(such_as("--moe-per-layer-logging"));
  table.add("moe_grouped_gemm", experts.grouped_gemm, "multiply the tokens of all experts in one grouped matmul")
      .without_effect("experts are always computed by grouped matmuls")
      .differs({.megatron = "computes one expert after the other without it",
                .ours = "has no effect: experts are always computed by grouped matmuls"});
  table.add("moe_permute_fusion", experts.permute_fusion, "fuse the kernels that sort tokens by expert")
      .without_effect("these kernels are always fused");
  table.add("moe_enable_routing_replay", experts.enable_routing_replay, "let routers record and replay their choice")
      .without_effect(
          "they always can, for programs that use the library; pretrain_gpt does neither, as Megatron-LM's");
  table.add("moe_flex_dispatcher_backend", experts.flex_dispatcher_backend, "")
      .one_of({"deepep", "hybridep", "ncclep"})
      .without_effect("--moe-token-dispatcher-type flex needs no library: it is the same as alltoall");
  table.add("moe_router_fusion", experts.router_fusion, "fuse the kernels of the router")
      .without_effect("these kernels are always fused");
}

}  // namespace

void describe_experts(FieldTable& table, PretrainConfig& config) {
  const FieldCondition has_experts = [&config] { return config.experts.num_experts.value_or(0) > 0; };
  describe_sizes(table, config, has_experts);
  describe_router(table, config, has_experts);
  describe_balance(table, config, has_experts);
  describe_rest(table, config, has_experts);
}

}  // namespace megatron
