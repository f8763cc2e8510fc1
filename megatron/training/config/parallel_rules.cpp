// Rules of the split over ranks.
#include <algorithm>

#include "megatron/training/config/layouts.h"
#include "megatron/training/config/rules.h"

namespace megatron {
namespace {

void resolve_data_parallel_size(ParallelConfig& parallel, int64_t world_size, Mistakes& mistakes) {
  const int64_t model_ranks =
      parallel.tensor_model_parallel_size * parallel.pipeline_model_parallel_size * parallel.context_parallel_size;
  parallel.world_size = world_size;
  parallel.data_parallel_size = std::max<int64_t>(1, world_size / model_ranks);
  if (world_size % model_ranks != 0)
    mistakes.add(
        {"--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size"},
        "{} rank{} not divide by tensor {} * pipeline {} * context {} = {}: every model needs as many. Start {} "
        "ranks (--nproc-per-node or mpirun -np), or choose other sizes",
        world_size, world_size == 1 ? " does" : "s do", parallel.tensor_model_parallel_size,
        parallel.pipeline_model_parallel_size, parallel.context_parallel_size, model_ranks,
        (world_size / model_ranks + 1) * model_ranks);
}

void check_tensor_parallel(const PretrainConfig& config, Mistakes& mistakes) {
  const TransformerConfig& net = config.transformer;
  const int64_t tp = config.parallel.tensor_model_parallel_size;
  const auto must_divide = [&](int64_t size, std::string_view flag, std::string_view what) {
    if (size > 0 && size % tp != 0)
      mistakes.add({flag, "--tensor-model-parallel-size"},
                   "{} {} does not divide by --tensor-model-parallel-size {}: each rank owns an equal part of {}", flag,
                   size, tp, what);
  };
  must_divide(net.num_attention_heads, "--num-attention-heads", "the heads");
  must_divide(net.ffn_hidden_size, "--ffn-hidden-size", "the feed-forward");
  const int64_t groups = net.num_query_groups;
  if (config.model.group_query_attention && groups > 0 && groups % tp != 0 && tp % groups != 0)
    mistakes.add({"--num-query-groups", "--tensor-model-parallel-size"},
                 "--num-query-groups {} must be a multiple or a divisor of --tensor-model-parallel-size {}", groups,
                 tp);
  else if (net.qk_layernorm_across_heads && groups > 0)
    must_divide(groups, config.model.group_query_attention ? "--num-query-groups" : "--num-attention-heads",
                "the key heads, which --qk-layernorm-across-heads takes together");
  const int64_t cp = config.parallel.context_parallel_size;
  if (config.parallel.sequence_parallel && config.model.seq_length && *config.model.seq_length % cp == 0)
    must_divide(*config.model.seq_length / cp,
                cp > 1 ? "--seq-length divided by --context-parallel-size" : "--seq-length", "the sequence");
}

void check_delayed_weight_gradients(const PretrainConfig& config, Mistakes& mistakes) {
  constexpr std::string_view kDelay = "--tp-comm-overlap-delay-wgrad";
  const ParallelConfig& parallel = config.parallel;
  if (!parallel.tp_comm_overlap || !parallel.tp_comm_overlap_delay_wgrad) return;
  if (config.transformer.recompute_granularity == RecomputeGranularity::kFull)
    mistakes.add({kDelay, "--recompute-granularity"},
                 "{} and --recompute-granularity full exclude each other: every layer's weight gradients would wait, "
                 "with what they read, for the end of the backward. Leave out one, or recompute selected modules",
                 kDelay);
  const std::optional<ScheduleKind>& kind = parallel.pipeline_schedule;
  if (parallel.pipeline_model_parallel_size > 1 && kind && traits_of(*kind).splits_weight_gradient)
    mistakes.add({kDelay, "--pipeline-schedule"},
                 "{} and --pipeline-schedule {} exclude each other: that schedule places weight gradients itself, in "
                 "the bubble. Leave out one",
                 kDelay, name_of(*kind));
}

void check_tensor_overlap(const PretrainConfig& config, Mistakes& mistakes) {
  const ParallelConfig& parallel = config.parallel;
  if (!parallel.tp_comm_overlap) return;
  if (!parallel.sequence_parallel)  // also where one rank made it false
    mistakes.add({"--tp-comm-overlap", "--sequence-parallel", "--tensor-model-parallel-size"},
                 "--tp-comm-overlap needs --sequence-parallel and a --tensor-model-parallel-size above 1, which is {}: "
                 "what it hides is the gather and the scatter of their rows. Give both, or leave it out",
                 parallel.tensor_model_parallel_size);
  const bool backward_only = parallel.tp_comm_overlap_rs_dgrad || parallel.tp_comm_overlap_delay_wgrad;
  if (!parallel.tp_comm_overlap_ag && !parallel.tp_comm_overlap_rs && !backward_only)
    mistakes.add({"--tp-comm-overlap", "--no-tp-comm-overlap-ag", "--no-tp-comm-overlap-rs"},
                 "--tp-comm-overlap --no-tp-comm-overlap-ag --no-tp-comm-overlap-rs overlap nothing: leave out one of "
                 "the three, or give --tp-comm-overlap-rs-dgrad");
}

/// Checks the settings that all ranks that share experts need alike.
void check_expert_share(const PretrainConfig& config, Mistakes& mistakes) {
  constexpr std::string_view kExperts = "--num-experts", kTensor = "--expert-tensor-parallel-size";
  const ParallelConfig& parallel = config.parallel;
  const int64_t num_experts = *config.experts.num_experts, ep = parallel.expert_model_parallel_size;
  const int64_t etp = *parallel.expert_tensor_parallel_size;
  if (num_experts % ep != 0)
    mistakes.add({"--expert-model-parallel-size", kExperts},
                 "--num-experts {} does not divide by --expert-model-parallel-size {}: each rank has as many experts. "
                 "Give --num-experts {}",
                 num_experts, ep, (num_experts / ep + 1) * ep);
  if (const int64_t width = config.experts.ffn_hidden_size.value_or(0); width % etp != 0)
    mistakes.add({kTensor, "--moe-ffn-hidden-size"},
                 "--moe-ffn-hidden-size {} does not divide by {} {}: each rank owns an equal part of every expert. "
                 "Give --moe-ffn-hidden-size {}",
                 width, kTensor, etp, (width / etp + 1) * etp);
  const int64_t tp = parallel.tensor_model_parallel_size;
  if (const int64_t width = config.experts.shared_expert_intermediate_size.value_or(0); width % tp != 0)
    mistakes.add({"--moe-shared-expert-intermediate-size", "--tensor-model-parallel-size"},
                 "--moe-shared-expert-intermediate-size {} does not divide by --tensor-model-parallel-size {}: each "
                 "rank owns an equal part of the shared experts",
                 width, tp);
  if (config.transformer.add_bias_linear && etp > 1)
    mistakes.add({kTensor, "--disable-bias-linear", kExperts},
                 "experts with biases cannot be cut over {} {} ranks: give --disable-bias-linear or {} 1", kTensor, etp,
                 kTensor);
  if (tp > 1 && !parallel.sequence_parallel)
    mistakes.add(
        {"--tensor-model-parallel-size", "--sequence-parallel", kExperts},
        "--num-experts with --tensor-model-parallel-size {} needs --sequence-parallel: otherwise each of these "
        "ranks would route all tokens",
        tp);
}

/// Resolves the grid of the experts, over the ranks of the dense layers' grid.
void check_expert_grid(const PretrainConfig& config, Mistakes& mistakes) {
  constexpr std::string_view kExpert = "--expert-model-parallel-size", kTensor = "--expert-tensor-parallel-size";
  const ParallelConfig& parallel = config.parallel;
  const int64_t ep = parallel.expert_model_parallel_size, etp = *parallel.expert_tensor_parallel_size;
  const int64_t pp = parallel.pipeline_model_parallel_size, of_experts = ep * etp * pp, ranks = parallel.world_size;
  if (ranks % of_experts != 0) {
    mistakes.add(
        {kExpert, kTensor, "--pipeline-model-parallel-size"},
        "{} rank{} not divide by expert {} * expert tensor {} * pipeline {} = {}: all experts together need as "
        "many. Start {} ranks, or choose other sizes; {} is --tensor-model-parallel-size without the flag",
        ranks, ranks == 1 ? " does" : "s do", ep, etp, pp, of_experts, (ranks / of_experts + 1) * of_experts, kTensor);
    return;
  }
  const int64_t replicas = ranks / of_experts, instances = parallel.num_distributed_optimizer_instances;
  if (replicas % instances != 0)
    mistakes.add({"--num-distributed-optimizer-instances", kExpert, kTensor},
                 "--num-distributed-optimizer-instances {} does not divide the {} replicas of the experts, {} ranks / "
                 "(expert {} * expert tensor {} * pipeline {}): each instance has as many",
                 instances, replicas, ranks, ep, etp, pp);
  if (parallel.use_tp_pp_dp_mapping && pp > 1 && replicas != parallel.data_parallel_size)
    mistakes.add({"--use-tp-pp-dp-mapping", kExpert, kTensor},
                 "--use-tp-pp-dp-mapping needs as many replicas of the experts as of the rest where there are pipeline "
                 "stages; these are {} and {}. Leave it out, or choose {} * {} = --tensor-model-parallel-size",
                 replicas, parallel.data_parallel_size, kExpert, kTensor);
}

void check_experts(PretrainConfig& config, Mistakes& mistakes) {
  ParallelConfig& parallel = config.parallel;
  if (!parallel.expert_tensor_parallel_size) parallel.expert_tensor_parallel_size = parallel.tensor_model_parallel_size;
  if (config.experts.num_experts) {
    check_expert_share(config, mistakes);
    check_expert_grid(config, mistakes);
  } else if (parallel.expert_model_parallel_size > 1) {
    mistakes.add({"--expert-model-parallel-size", "--num-experts"},
                 "--expert-model-parallel-size {} needs a mixture of experts: give --num-experts",
                 parallel.expert_model_parallel_size);
  }
}

void check_optimizer_state(const PretrainConfig& config, Mistakes& mistakes) {
  constexpr std::string_view kAware = "--use-precision-aware-optimizer";
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.use_precision_aware_optimizer && optimizer.optimizer != OptimizerType::kAdam)
    mistakes.add({kAware, "--optimizer"}, "{} needs --optimizer adam", kAware);
  if (optimizer.main_params_dtype == MainParamsDType::kBFloat16) {
    constexpr std::string_view kMain = "--main-params-dtype";
    if (!optimizer.use_precision_aware_optimizer) mistakes.add({kMain, kAware}, "{} bf16 needs {}", kMain, kAware);
    if (!config.precision.bf16)
      mistakes.add({kMain, "--bf16"}, "{} bf16 needs --bf16: it is the weights themselves that are stepped", kMain);
  }
  const std::pair<std::string_view, StateDType> dtypes[] = {{"--main-grads-dtype", optimizer.main_grads_dtype},
                                                            {"--exp-avg-dtype", optimizer.exp_avg_dtype},
                                                            {"--exp-avg-sq-dtype", optimizer.exp_avg_sq_dtype}};
  for (const auto& [flag, dtype] : dtypes)
    if (dtype != StateDType::kFloat32 && !optimizer.use_precision_aware_optimizer)
      mistakes.add({flag, kAware}, "{} bf16 needs {}", flag, kAware);
  if (optimizer.main_grads_dtype != StateDType::kBFloat16) return;
  if (!config.precision.bf16)
    mistakes.add({"--main-grads-dtype", "--bf16"},
                 "--main-grads-dtype bf16 needs --bf16: gradients are of the weights");
  if (config.precision.accumulate_allreduce_grads_in_fp32)
    mistakes.add({"--main-grads-dtype", "--accumulate-allreduce-grads-in-fp32"},
                 "--main-grads-dtype bf16 and --accumulate-allreduce-grads-in-fp32 exclude each other: gradients are "
                 "summed in one precision");
}

void check_data_parallel(const PretrainConfig& config, Mistakes& mistakes) {
  const ParallelConfig& parallel = config.parallel;
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.overlap_param_gather && !optimizer.use_distributed_optimizer)
    mistakes.add({"--overlap-param-gather", "--use-distributed-optimizer"},
                 "--overlap-param-gather needs --use-distributed-optimizer: otherwise there is nothing to gather");
  if (optimizer.overlap_param_gather && !parallel.overlap_grad_reduce)
    mistakes.add({"--overlap-param-gather", "--overlap-grad-reduce"},
                 "--overlap-param-gather needs --overlap-grad-reduce");
  const int64_t instances = parallel.num_distributed_optimizer_instances;
  if (instances > 1 && (!optimizer.use_distributed_optimizer || parallel.num_replicas() % instances != 0))
    mistakes.add({"--num-distributed-optimizer-instances", "--use-distributed-optimizer"},
                 "--num-distributed-optimizer-instances {} needs --use-distributed-optimizer and a divisor of the {} "
                 "data- and context-parallel ranks",
                 instances, parallel.num_replicas());
  if (parallel.ddp_num_buckets && parallel.ddp_bucket_size)
    mistakes.add({"--ddp-num-buckets", "--ddp-bucket-size"},
                 "--ddp-num-buckets and --ddp-bucket-size exclude each other");
}

}  // namespace

void resolve_parallel(PretrainConfig& config, int64_t world_size, Mistakes& mistakes) {
  ParallelConfig& parallel = config.parallel;
  resolve_data_parallel_size(parallel, world_size, mistakes);
  if (parallel.tensor_model_parallel_size == 1) parallel.sequence_parallel = false;
  check_tensor_parallel(config, mistakes);
  check_tensor_overlap(config, mistakes);
  check_delayed_weight_gradients(config, mistakes);
  resolve_context_parallel(config, mistakes);
  check_experts(config, mistakes);
  resolve_pipeline(config, mistakes);
  check_data_parallel(config, mistakes);
  check_optimizer_state(config, mistakes);
}

}  // namespace megatron
