#include "megatron/distributed/replica_groups.h"

namespace megatron {

ReplicaGroups replicas_of(ShardGrid grid, const ProcessGroupCollection& groups) {
  if (grid == ShardGrid::kExpert)
    return {.all = groups.expt_dp, .of_instance = groups.intra_expt_dp, .instances = groups.inter_dist_opt};
  return {.all = groups.dp_cp, .of_instance = groups.intra_dp_cp, .instances = groups.inter_dist_opt};
}

ReplicaGroups replicas_of(const Parameter& parameter, const ProcessGroupCollection& groups) {
  return replicas_of(parameter.options().shard.grid, groups);
}

void require_own_place(const Parameter& parameter, const ProcessGroupCollection& groups) {
  const ShardPlace own = groups.shard_place(), &made = parameter.options().place;
  const auto is_own = [&](ShardAxis axis) { return made.on(axis) == own.on(axis); };
  const bool is_expert = parameter.options().shard.grid == ShardGrid::kExpert;
  require(
      is_expert ? is_own(ShardAxis::kExpert) && is_own(ShardAxis::kExpertTensor) : is_own(ShardAxis::kTensor),
      "[replica groups] {} was made for tensor rank {} of {}, expert rank {} of {} and expert tensor rank {} of {}; "
      "this rank is {} of {}, {} of {} and {} of {}. Give its options the place of the groups "
      "(ProcessGroupCollection::shard_place).",
      parameter.name(), made.tensor.rank, made.tensor.size, made.expert.rank, made.expert.size, made.expert_tensor.rank,
      made.expert_tensor.size, own.tensor.rank, own.tensor.size, own.expert.rank, own.expert.size,
      own.expert_tensor.rank, own.expert_tensor.size);
}

}  // namespace megatron
