// The layout of ranks that a checkpoint is written for.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "megatron/dist_checkpointing/checkpoint_metadata.h"
#include "megatron/dist_checkpointing/rank_tensors.h"

namespace megatron {

/// The wishes of a user; nothing: as in the stored run, but one part of each stage, and as many data-parallel ranks as
/// experts need.
struct LayoutRequest {
  std::optional<int64_t> tensor_parallel_size, pipeline_parallel_size, virtual_pipeline_parallel_size,
      expert_parallel_size, expert_tensor_parallel_size, data_parallel_size;
};

struct TargetLayout {
  ModelDivision division;
  int64_t data_parallel_size = 1, context_parallel_size = 1;
  int64_t num_layers = 1;
  bool has_experts = false;
  std::vector<StagePart> parts = {};  ///< by chunk * stages + stage; none: the layers are divided evenly
  bool is_of_run = false;             ///< the stored run has it: arguments stay as they are

  int64_t ranks_of_stage() const { return division.tensor * data_parallel_size; }
  int64_t world_size() const { return ranks_of_stage() * division.pipeline; }
  StagePart part(int64_t stage, int64_t chunk) const;
  /// Returns a rank of a stage, in Megatron's order of ranks: tensor-parallel ranks follow each other, then
  /// data-parallel ones; over the same ranks those of an expert, then experts.
  StageRank rank_of_stage(int64_t rank) const;
};

/// @param arguments  of the stored run. @param model  its tensors, without those of the optimizer.
/// @throw CheckpointError if the model cannot be divided so.
TargetLayout target_layout(const LayoutRequest& request, const pickle::Object& arguments,
                           const std::map<std::string, GlobalTensor, std::less<>>& model);

/// Makes stored arguments those of a run of this layout. @param graph  owns them.
void set_layout(pickle::Graph& graph, pickle::Object& arguments, const TargetLayout& layout);
/// Sets an argument, where there is one of this name. @param graph  owns them.
void set_argument(pickle::Object& arguments, std::string_view name, pickle::Object& value);

}  // namespace megatron
