#include "megatron/training/planning/step_plan.h"

#include <limits>

#include "megatron/comm/meta/meta_world.h"
#include "megatron/comm/nccl/copied_groups.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/config/schedules.h"
#include "megatron/training/trainer.h"

namespace megatron {
namespace {

/// More than any device has: the plan of a step that does not fit says how much it would need.
constexpr int64_t kAnyCapacity = int64_t{1} << 46;

/// Two steps, as the first makes what later ones find, with the largest batch; and one that is repeated because rows
/// overflowed, where that may happen.
void take_steps(Trainer& trainer) {
  const PretrainConfig& config = trainer.config();
  const int64_t sequence_length = config.model.seq_length.value();
  const int64_t number = microbatch_calculator_of(config).at(std::numeric_limits<int64_t>::max()).num_microbatches;
  const auto batch =
      config.family.blank_batch(config.training.micro_batch_size.value(), sequence_length, config.family.options);
  for (int step = 0; step < 2; ++step) trainer.train_step(MicroBatches::repeated(batch, number));
  if (config.transformer.moe && config.transformer.moe->expert_rank_capacity_factor) {
    trainer.model().set_bounded(false);
    trainer.train_step(MicroBatches::repeated(batch, number));
    trainer.model().set_bounded(true);
  }
  if (!config.validation.evaluates()) return;
  const int64_t num_evaluated = eval_microbatch_calculator_of(config).at(0).num_microbatches;
  const auto evaluated = config.family.blank_batch(config.validation.eval_micro_batch_size.value(), sequence_length,
                                                   config.family.options);
  trainer.evaluate(MicroBatches::repeated(evaluated, num_evaluated));
}

MemoryPlan memory_of(const Arena& arena) {
  MemoryPlan plan{.peak = arena.total().peak, .high_water = arena.high_water_bytes()};
  for (int use = 0; use < kNumMemoryUses; ++use)
    plan.peaks[static_cast<size_t>(use)] = arena.amount(static_cast<MemoryUse>(use)).peak;
  return plan;
}

/// Says whether the messages of a channel are copied between GPUs.
bool is_copied(const Connection& channel, const ProcessGroup& group, const RankPlaces& places) {
  return group.traits().by_copy_engine &&
         places.reach(group.global_rank(channel.sender), group.global_rank(channel.receiver));
}

/// Says whether the rows of a group's collectives are.
bool has_copied_rows(const ConnectionUse& use, const ProcessGroup& group, const RankPlaces& places) {
  std::vector<int> ranks;
  ranks.reserve(static_cast<size_t>(group.size()));
  for (int rank = 0; rank < group.size(); ++rank) ranks.push_back(group.global_rank(rank));
  return use.copies_rows() && group.size() <= CopiedGroups::kMostRanks && places.reach(ranks);
}

/// Beside those of the steps there is the world, in which ranks compare what they were given.
void count_connections(Connections connections, const ProcessGroupCollection& groups, const RankPlaces& places,
                       MemoryPlan& plan) {
  connections[{.group = std::string(groups.world.name())}];
  for (const auto& [used, use] : connections) {
    const ProcessGroup group = groups.named(used.group);
    const bool needs_no_nccl = used.is_channel() && is_copied(used, group, places);
    if (!needs_no_nccl) ++plan.num_communicators;
    if (needs_no_nccl && used.receiver == group.rank()) plan.copies += CopiedGroups::message_bytes(use.largest);
    if (!used.is_channel() && has_copied_rows(use, group, places))
      plan.copies += CopiedGroups::row_bytes(group.size(), use.largest);
  }
}

}  // namespace

StepPlan plan_steps(const PretrainConfig& config, int rank, DeviceKind backend, const RankPlaces& places) {
  MetaWorld world(rank, static_cast<int>(config.parallel.world_size));
  const ProcessGroupCollection groups = world.size() == 1
                                            ? ProcessGroupCollection::single()
                                            : ProcessGroupCollection::make(world, parallel_layout_of(config));
  Trainer trainer(config,
                  {.device = DeviceKind::kMeta, .meta_of = backend, .capacity_bytes = kAnyCapacity, .groups = groups});
  take_steps(trainer);
  StepPlan plan{.memory = memory_of(trainer.device().arena), .connections = world.connections()};
  plan.memory.host = trainer.device().pinned.high_water_bytes();
  plan.memory.cuts_samples = config.data.separates_documents();
  if (world.size() > 1) count_connections(plan.connections, groups, places, plan.memory);
  return plan;
}

}  // namespace megatron
