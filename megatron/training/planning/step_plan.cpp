#include "megatron/training/planning/step_plan.h"

#include <limits>

#include "megatron/comm/meta/meta_world.h"
#include "megatron/comm/nccl/copied_groups.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/config/schedules.h"
#include "megatron/training/trainer.h"

namespace megatron {
namespace {

/// More than any device has: the plan of what does not fit tells how much it would be.
constexpr int64_t kAnyCapacity = int64_t{1} << 46;

/// Two steps, as the first makes what later ones find, with the largest batch.
void take_steps(Trainer& trainer) {
  const PretrainConfig& config = trainer.config();
  const int64_t sequence_length = config.model.seq_length.value();
  const int64_t number = microbatch_calculator_of(config).at(std::numeric_limits<int64_t>::max()).num_microbatches;
  const auto batch = config.family.blank_batch(config.training.micro_batch_size.value(), sequence_length);
  for (int step = 0; step < 2; ++step) trainer.train_step(MicroBatches::repeated(batch, number));
  if (!config.validation.evaluates()) return;
  const int64_t num_evaluated = eval_microbatch_calculator_of(config).at(0).num_microbatches;
  const auto evaluated = config.family.blank_batch(config.validation.eval_micro_batch_size.value(), sequence_length);
  trainer.evaluate(MicroBatches::repeated(evaluated, num_evaluated));
}

MemoryPlan memory_of(const Arena& arena) {
  MemoryPlan plan{.peak = arena.total().peak, .high_water = arena.high_water_bytes()};
  for (int use = 0; use < kNumMemoryUses; ++use)
    plan.peaks[static_cast<size_t>(use)] = arena.amount(static_cast<MemoryUse>(use)).peak;
  return plan;
}

/// Whether messages of the pipeline go by copies.
bool is_copied(const Connection& channel, const ProcessGroup& pp, const RankPlaces& places) {
  return channel.group == pp.name() && CopiedGroups::contains(pp.name()) &&
         places.reach(pp.global_rank(channel.sender), pp.global_rank(channel.receiver));
}

bool has_copied_rows(const ProcessGroup& tp, const RankPlaces& places) {
  std::vector<int> ranks;
  ranks.reserve(static_cast<size_t>(tp.size()));
  for (int rank = 0; rank < tp.size(); ++rank) ranks.push_back(tp.global_rank(rank));
  return CopiedGroups::contains(tp.name()) && tp.size() <= CopiedGroups::kMostRanks && places.reach(ranks);
}

/// Beside those of the steps there is the world, in which ranks compare what they were given.
void count_connections(Connections connections, const ProcessGroupCollection& groups, const RankPlaces& places,
                       MemoryPlan& plan) {
  const auto &tp = groups.tp, &pp = groups.pp;
  note(connections, {.group = "world"}, 0);
  for (const auto& [used, bytes] : connections) {
    const bool is_channel = used.tag >= 0, needs_no_nccl = is_channel && is_copied(used, pp, places);
    if (!needs_no_nccl) ++plan.num_communicators;
    if (needs_no_nccl && used.receiver == pp.rank()) plan.copies += CopiedGroups::message_bytes(bytes);
    if (!is_channel && used.group == tp.name() && bytes > 0 && has_copied_rows(tp, places))
      plan.copies += CopiedGroups::row_bytes(tp.size(), bytes);
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
  plan.memory.cuts_samples = config.data.reset_attention_mask;
  if (world.size() > 1) count_connections(plan.connections, groups, places, plan.memory);
  return plan;
}

}  // namespace megatron
