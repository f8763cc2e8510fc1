#include "megatron/comm/process_group_collection.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using Member = ProcessGroup ProcessGroupCollection::*;

constexpr std::pair<GroupKind, Member> kMembers[] = {
    {GroupKind::kDpCp, &ProcessGroupCollection::dp_cp},
    {GroupKind::kIntraDpCp, &ProcessGroupCollection::intra_dp_cp},
    {GroupKind::kDp, &ProcessGroupCollection::dp},
    {GroupKind::kCp, &ProcessGroupCollection::cp},
    {GroupKind::kMp, &ProcessGroupCollection::mp},
    {GroupKind::kTp, &ProcessGroupCollection::tp},
    {GroupKind::kPp, &ProcessGroupCollection::pp},
    {GroupKind::kTpDpCp, &ProcessGroupCollection::tp_dp_cp},
    {GroupKind::kTpDp, &ProcessGroupCollection::tp_dp},
    {GroupKind::kTpCp, &ProcessGroupCollection::tp_cp},
    {GroupKind::kEp, &ProcessGroupCollection::ep},
    {GroupKind::kExptTp, &ProcessGroupCollection::expt_tp},
    {GroupKind::kTpEp, &ProcessGroupCollection::tp_ep},
    {GroupKind::kTpEpPp, &ProcessGroupCollection::tp_ep_pp},
    {GroupKind::kExptDp, &ProcessGroupCollection::expt_dp},
    {GroupKind::kIntraExptDp, &ProcessGroupCollection::intra_expt_dp},
    {GroupKind::kInterDistOpt, &ProcessGroupCollection::inter_dist_opt},
    {GroupKind::kIntraDistOpt, &ProcessGroupCollection::intra_dist_opt},
};

/// Communicators number their members in ascending order, though a list may be a concatenation of runs.
RankLists ascending(RankLists groups) {
  for (auto& ranks : groups) std::sort(ranks.begin(), ranks.end());
  return groups;
}

}  // namespace

ProcessGroupCollection ProcessGroupCollection::make(World& world, const ParallelLayout& layout) {
  require<ConfigError>(world.size() == layout.sizes().world_size,
                       "[ProcessGroupCollection] the layout is for {} ranks, "
                       "the world has {}",
                       layout.sizes().world_size, world.size());
  const auto split = [&](GroupKind kind) {
    return world.split(name_of(kind), ascending(layout.groups(kind)), traits_of(kind));
  };

  ProcessGroupCollection groups;
  RankLists all(1, std::vector<int>(static_cast<size_t>(world.size())));
  std::iota(all[0].begin(), all[0].end(), 0);
  groups.world = world.split("world", all).value();
  for (const auto& [kind, member] : kMembers) groups.*member = split(kind).value();
  groups.embd = split(GroupKind::kEmbd);
  groups.pos_embd = split(GroupKind::kPosEmbd);
  for (const RankLists& level : layout.hierarchical_cp_groups())
    groups.hcp.push_back(
        world.split(fmt::format("hcp{}", groups.hcp.size()), level, traits_of(GroupKind::kCp)).value());
  std::vector<RankLists> hybrid = layout.hybrid_dp_cp_groups();
  if (layout.sizes().hybrid_context_parallel) hybrid.push_back(layout.groups(GroupKind::kDpCp));
  for (const RankLists& runs : hybrid)
    groups.hybrid_dp_cp.push_back(
        world.split(fmt::format("hybrid{}", runs.front().size()), ascending(runs), traits_of(GroupKind::kCp)).value());
  return groups;
}

ProcessGroup ProcessGroupCollection::named(std::string_view name) const {
  std::vector<ProcessGroup> all{world};
  for (const auto& [kind, member] : kMembers) all.push_back(this->*member);
  for (const auto& group : {embd, pos_embd})
    if (group) all.push_back(*group);
  all.insert(all.end(), hcp.begin(), hcp.end());
  all.insert(all.end(), hybrid_dp_cp.begin(), hybrid_dp_cp.end());
  const auto found = std::ranges::find(all, name, &ProcessGroup::name);
  require(found != all.end(), "[ProcessGroupCollection] there is no group \"{}\".", name);
  return *found;
}

ShardPlace ProcessGroupCollection::shard_place() const {
  return {.tensor = {tp.rank(), tp.size()},
          .expert = {ep.rank(), ep.size()},
          .expert_tensor = {expt_tp.rank(), expt_tp.size()}};
}

}  // namespace megatron
