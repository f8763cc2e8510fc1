// Which ranks hold the same shard of a parameter.
#pragma once

#include "megatron/autograd/parameter.h"
#include "megatron/comm/process_group_collection.h"

namespace megatron {

/// The ranks that hold the same shards of the parameters of a grid: those of data and context parallelism for dense
/// parameters, those of expert data parallelism for experts. They reduce gradients together, share the distributed
/// optimizer's state and deal out what a checkpoint stores of them.
struct ReplicaGroups {
  ProcessGroup all;
  ProcessGroup of_instance;  // those among them that share one instance of the distributed optimizer
  ProcessGroup instances;    // equal places in all instances
};

ReplicaGroups replicas_of(ShardGrid grid, const ProcessGroupCollection& groups);
ReplicaGroups replicas_of(const Parameter& parameter, const ProcessGroupCollection& groups);

/// @throw InternalError if the parameter was made for another place on the axes of its grid than that of this rank
void require_own_place(const Parameter& parameter, const ProcessGroupCollection& groups);

}  // namespace megatron
