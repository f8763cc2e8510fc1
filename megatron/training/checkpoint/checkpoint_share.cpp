#include "megatron/training/checkpoint/checkpoint_share.h"

#include <algorithm>

#include "megatron/dist_checkpointing/element_type.h"
#include "megatron/training/checkpoint/device_tensor_source.h"

namespace megatron {

ReplicaDealer::ReplicaDealer(const ProcessGroupCollection& groups, bool deals) {
  for (const ShardGrid grid : {ShardGrid::kDense, ShardGrid::kExpert}) {
    const ProcessGroup replicas = replicas_of(grid, groups).all;
    grids_[static_cast<size_t>(grid)] = {
        replicas, std::vector<int64_t>(deals ? static_cast<size_t>(replicas.size()) : size_t{1})};
  }
}

const ReplicaDealer::OfGrid& ReplicaDealer::of(const Parameter& parameter) const {
  return grids_[static_cast<size_t>(parameter.options().shard.grid)];
}

int ReplicaDealer::owner_of(const Parameter& parameter, int64_t bytes) {
  std::vector<int64_t>& all = grids_[static_cast<size_t>(parameter.options().shard.grid)].bytes;
  const auto least = std::ranges::min_element(all);
  *least += bytes;
  return static_cast<int>(least - all.begin());
}

bool ReplicaDealer::takes(const Parameter& parameter, int64_t bytes) {
  return owner_of(parameter, bytes) == of(parameter).replicas.rank();
}

CheckpointShare::CheckpointShare(CheckpointWriter& writer, const Context& ctx, const ProcessGroupCollection& groups,
                                 bool deals)
    : ctx_(ctx), writer_(writer), dealer_(groups, deals), is_first_instance_(groups.inter_dist_opt.rank() == 0) {}

void CheckpointShare::add_replicated(const Parameter& parameter, const CheckpointPlacement& placement,
                                     const std::string& key, const OptimizerTensor& value) {
  for (const CheckpointChunk& chunk : placement.chunks)
    if (!chunk.is_copy && dealer_.takes(parameter, chunk.sizes.num_elements() * size_of(value.dtype)))
      add(placement, key, chunk, value);
}

void CheckpointShare::add_sharded(const CheckpointPlacement& placement, const std::string& key,
                                  const OptimizerTensor& value) {
  for (const CheckpointChunk& chunk : placement.chunks)
    if (!chunk.is_copy && is_first_instance_) add(placement, key, chunk, value);
}

void CheckpointShare::add(const CheckpointPlacement& placement, const std::string& key, const CheckpointChunk& chunk,
                          const OptimizerTensor& value) {
  writer_.add_tensor(key, element_type_of(value.dtype), placement.global_shape, {chunk.offsets, chunk.sizes},
                     make_device_source(ctx_, value.tensor, value.dtype, chunk));
}

}  // namespace megatron
