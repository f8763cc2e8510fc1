// Keys of Megatron's distributed checkpoints, so that Megatron finds our tensors and we find its.
// Source: Megatron-LM core_v0.19.1 and Megatron Core 0.16.1, as seen in the files under tests/golden/checkpoint.
//
// Model tensors are named by module path, without pipeline stage or virtual chunk. In a homogeneous model (every layer
// of the same kind) the layers of one name are one tensor with a leading axis over layers:
//   decoder.layers.self_attention.linear_qkv.weight  [layers, (heads + 2 groups) * d, h]
// otherwise the global number of the layer is part of the name: decoder.layers.3.mlp.router.weight. Experts add an axis
// after that of the layers: decoder.layers.mlp.experts.experts.linear_fc1.weight [layers, experts, 2f, h]. The global
// form of a gated linear_fc1 is all of gate, then all of up, whatever the tensor-parallel size was.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace megatron {

/// All that Megatron keeps beside tensors is one object under this key. Its entries have the names below.
inline constexpr std::string_view kCommonStateKey = "common_state/shard_0_1";

namespace common_state {
inline constexpr const char* kArgs = "args";  // argparse.Namespace of all flags, consumed_train_samples among them
inline constexpr const char* kCheckpointVersion = "checkpoint_version";  // float
inline constexpr double kVersion = 3.0;
inline constexpr const char* kIteration = "iteration";  // int
inline constexpr const char* kOptimizer = "optimizer";  // absent without optimizer state
inline constexpr const char* kScheduler = "opt_param_scheduler";
inline constexpr const char* kFlops = "num_floating_point_operations_so_far";  // float
inline constexpr const char* kContentMetadata = "content_metadata";
// Within the optimizer's entry, by Megatron's class:
//   DistributedOptimizer  {"optimizer": {"param_groups": [...]}, "param_state_sharding_type": ...}
//   Float16Optimizer      {"optimizer": {"state": {...}, "param_groups": [...]}}
//   FP32Optimizer         {"state": {...}, "param_groups": [...]}
// With several chained optimizers a dict of these by number (dense 0, experts 1).
inline constexpr const char* kParamGroups = "param_groups";
inline constexpr const char* kState = "state";
inline constexpr const char* kCommonStep = "common_step";  // within the state: one for all parameters
inline constexpr const char* kGradScaler = "grad_scaler";
inline constexpr const char* kShardingType = "param_state_sharding_type";
// Within the content metadata.
inline constexpr const char* kOptimizerSharding = "distrib_optim_sharding_type";
inline constexpr const char* kMemoryEfficient = "distrib_optim_fully_reshardable_mem_efficient";
inline constexpr const char* kSingletonShards = "singleton_local_shards";
inline constexpr const char* kAvoidPrefix = "chained_optim_avoid_prefix";
/// Optimizer state as whole tensors, which any layout reads.
inline constexpr const char* kFullyReshardable = "fully_reshardable";
/// Optimizer state as the flat buckets of each tensor- and pipeline-parallel rank.
inline constexpr const char* kDpReshardable = "dp_reshardable";
}  // namespace common_state

/// "rng_state/shard_0.1_2.4": what the ranks of one pipeline and one tensor rank restore, as a list of dicts with the
/// entries below; one dict unless data-parallel ranks began with different random numbers.
std::string rng_state_key(int pp_rank, int pp_size, int tp_rank, int tp_size);

namespace rng_state {
inline constexpr const char* kPython = "random_rng_state";
inline constexpr const char* kNumpy = "np_rng_state";
inline constexpr const char* kTorch = "torch_rng_state";
inline constexpr const char* kCuda = "cuda_rng_state";
inline constexpr const char* kTracker = "rng_tracker_states";  // CUDA generators by name
inline constexpr const char* kDataParallel = "data-parallel-rng";
inline constexpr const char* kModelParallel = "model-parallel-rng";
inline constexpr const char* kExpertParallel = "expert-parallel-rng";
}  // namespace rng_state

/// "decoder.layers.mlp.linear_fc1._extra_state/shard_3_32": what Transformer Engine keeps of a module for fp8, None
/// without fp8. @param shard  the layer among `num_shards` layers; 0 of 1 outside of layers.
std::string extra_state_key(std::string_view module, int64_t shard, int64_t num_shards);
/// "decoder.layers.mlp.experts.experts.linear_fc1._extra_state/shard_1.3_2.4": the same of one expert, which each has
/// its own. @param layer  of `num_layers`; none where the number of the layer is in the module's name.
std::string expert_extra_state_key(std::string_view module, std::optional<int64_t> layer, int64_t num_layers,
                                   int64_t expert, int64_t num_experts);

/// The other name that a norm may have: Transformer Engine's linear layers contain the norm before them, and Megatron's
/// layers without it keep it as a module of its own where attention is latent, and name the norm before experts like
/// that of a dense feed-forward. Empty for tensors with one name.
std::string other_norm_key(std::string_view key);

class StoredTensors;
/// The name that a tensor has among these: `key`, or its other_norm_key() if that one alone is stored.
std::string found_key(const StoredTensors& tensors, const std::string& key);

/// Names of the float32 tensors that an optimizer keeps for each parameter.
namespace optimizer_state {
inline constexpr std::string_view kDistributedMaster = "param";  // the parameter, of a distributed optimizer
inline constexpr std::string_view kMaster = "fp32_param";        // the parameter, of an optimizer whole on each rank
inline constexpr std::string_view kFirstMoment = "exp_avg";
inline constexpr std::string_view kSecondMoment = "exp_avg_sq";
inline constexpr std::string_view kMomentum = "momentum_buffer";
}  // namespace optimizer_state

/// "optimizer.state.exp_avg.decoder.final_layernorm.weight", with the shape and the chunks of the parameter's tensor.
std::string optimizer_state_key(std::string_view state, std::string_view parameter_key);

}  // namespace megatron
