#include "megatron/training/connections_of_step.h"

#include "megatron/comm/meta/meta_world.h"
#include "megatron/training/blank_batches.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/config/schedules.h"
#include "megatron/training/trainer.h"

namespace megatron {
namespace {

constexpr int64_t kUnlimited = int64_t{1} << 50;  // of memory that does not exist

}  // namespace

Connections connections_of_step(const PretrainConfig& config, int rank) {
  MetaWorld world(rank, static_cast<int>(config.parallel.world_size));
  Trainer trainer(config, {.device = DeviceKind::kMeta,
                           .capacity_bytes = kUnlimited,
                           .groups = ProcessGroupCollection::make(world, parallel_layout_of(config))});
  const int64_t num_batches = microbatch_calculator_of(config).at(0).num_microbatches;
  const auto batches =
      blank_batches(num_batches, config.training.micro_batch_size.value(), config.model.seq_length.value());
  trainer.train_step(batches);
  trainer.evaluate(batches);
  return world.connections();
}

}  // namespace megatron
