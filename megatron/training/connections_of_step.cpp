#include "megatron/training/connections_of_step.h"

#include "megatron/comm/meta/meta_world.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/config/schedules.h"
#include "megatron/training/trainer.h"

namespace megatron {
namespace {

constexpr int64_t kUnlimited = int64_t{1} << 50;  // of memory that does not exist

MicroBatch<int64_t> blank_batch(const PretrainConfig& config) {
  MicroBatch<int64_t> batch;
  batch.num_samples = config.training.micro_batch_size.value();
  batch.sequence_length = config.model.seq_length.value();
  batch.num_valid_tokens = batch.num_samples * batch.sequence_length;
  const auto num_tokens = static_cast<size_t>(batch.num_valid_tokens);
  for (std::vector<int64_t>* ids : {&batch.tokens, &batch.labels, &batch.position_ids}) ids->resize(num_tokens);
  batch.loss_mask.resize(num_tokens, 1.0F);
  batch.cut_ends.resize(static_cast<size_t>(batch.num_samples));
  return batch;
}

}  // namespace

Connections connections_of_step(const PretrainConfig& config, int rank) {
  MetaWorld world(rank, static_cast<int>(config.parallel.world_size));
  Trainer trainer(config, {.device = DeviceKind::kMeta,
                           .capacity_bytes = kUnlimited,
                           .groups = ProcessGroupCollection::make(world, parallel_layout_of(config))});
  const int64_t num_batches = microbatch_calculator_of(config).at(0).num_microbatches;
  const std::vector<MicroBatch<int64_t>> batches(static_cast<size_t>(num_batches), blank_batch(config));
  trainer.train_step(batches);
  trainer.evaluate(batches);
  return world.connections();
}

}  // namespace megatron
