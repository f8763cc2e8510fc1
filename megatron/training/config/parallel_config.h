// Settings of the split of work over ranks. Names are Megatron Core's.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/pipeline_parallel/pipeline_schedule.h"

namespace megatron {

struct ParallelConfig {
  int64_t tensor_model_parallel_size = 1;
  int64_t pipeline_model_parallel_size = 1;
  int64_t context_parallel_size = 1;
  int64_t expert_model_parallel_size = 1;
  std::optional<int64_t> expert_tensor_parallel_size;  ///< none given: tensor_model_parallel_size
  bool sequence_parallel = false;
  /// The levels of a2a+p2p: the ranks that share heads, then the ranks of the ring.
  std::optional<std::vector<int64_t>> hierarchical_context_parallel_sizes;
  bool hybrid_context_parallel = false;
  std::optional<int64_t> max_seqlen_per_dp_cp_rank;  ///< of hybrid_context_parallel

  bool tp_comm_overlap = false;
  bool tp_comm_overlap_ag = true;
  bool tp_comm_overlap_rs = true;
  bool tp_comm_overlap_rs_dgrad = false;
  int64_t tp_comm_overlap_ag_splits = 1;  ///< this and the next: ours; see TensorCommOverlap
  int64_t tp_comm_overlap_rs_splits = 2;
  bool tp_comm_overlap_delay_wgrad = false;  ///< ours

  std::optional<ScheduleKind> pipeline_schedule;  ///< ours; none: 1f1b, or interleaved with virtual stages
  std::optional<int64_t> num_layers_per_virtual_pipeline_stage;
  std::optional<int64_t> num_virtual_stages_per_pipeline_rank;
  std::optional<int64_t> decoder_first_pipeline_num_layers;
  std::optional<int64_t> decoder_last_pipeline_num_layers;
  bool account_for_embedding_in_pipeline_split = false;
  bool account_for_loss_in_pipeline_split = false;
  std::optional<std::string> pipeline_model_parallel_layout;  ///< see parse_layout
  std::optional<int64_t> microbatch_group_size_per_vp_stage;
  bool overlap_p2p_comm = true;  ///< resolved: false unless interleaved

  bool overlap_grad_reduce = false;
  bool align_grad_reduce = true;
  bool align_param_gather = true;  ///< resolved: false unless interleaved
  std::optional<int64_t> ddp_num_buckets;
  std::optional<int64_t> ddp_bucket_size;  ///< elements
  bool ddp_average_in_collective = false;
  bool ddp_pad_buckets_for_high_nccl_busbw = false;
  int64_t num_distributed_optimizer_instances = 1;
  bool use_tp_pp_dp_mapping = false;  ///< rank order tp-cp-ep-pp-dp instead of tp-cp-ep-dp-pp
  int64_t distributed_timeout_minutes = 10;
  std::optional<int64_t> distributed_timeout_seconds_after_init;  ///< from the second iteration on
  std::chrono::minutes timeout() const { return std::chrono::minutes(distributed_timeout_minutes); }

  // Derived
  int64_t world_size = 1;
  int64_t data_parallel_size = 1;
  std::optional<int64_t> virtual_pipeline_model_parallel_size;

  /// Says whether ranks have different experts, or parts of them.
  bool shares_experts() const {
    return expert_model_parallel_size > 1 || expert_tensor_parallel_size.value_or(tensor_model_parallel_size) > 1;
  }
  bool has_stages() const { return pipeline_model_parallel_size > 1; }
  bool is_interleaved() const { return virtual_pipeline_model_parallel_size.has_value(); }
  /// The number of ranks that hold the same weights: those of data and of context parallelism.
  int64_t num_replicas() const { return data_parallel_size * context_parallel_size; }
  bool has_replicas() const { return num_replicas() > 1; }
};

}  // namespace megatron
