#include "megatron/comm/parallel_layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <set>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"

namespace megatron {
namespace {

using enum GridAxis;

int expert_tensor_size(const ParallelSizes& s) {
  return s.expert_tensor_parallel_size.value_or(s.tensor_model_parallel_size);
}

void throw_if_any(const std::vector<std::string>& mistakes) {
  if (!mistakes.empty()) throw ConfigError(fmt::format("[parallel layout] {}", joined(mistakes, "\n  ")));
}

void check_sizes(const ParallelSizes& s) {
  std::vector<std::string> mistakes;
  const auto expect = [&]<class... Args>(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition) mistakes.push_back(fmt::format(format, std::forward<Args>(args)...));
  };
  const int tp = s.tensor_model_parallel_size, pp = s.pipeline_model_parallel_size, cp = s.context_parallel_size;
  const int etp = expert_tensor_size(s), ep = s.expert_model_parallel_size;
  for (int size : {s.world_size, tp, pp, cp, etp, ep, s.num_distributed_optimizer_instances})
    expect(size >= 1, "a parallel size is {}; all are at least 1.", size);
  throw_if_any(mistakes);

  expect(
      s.world_size % (tp * pp * cp) == 0,
      "world_size {} is not divisible by tensor {} x pipeline {} x context {} = {}. Each model replica needs that many "
      "ranks.",
      s.world_size, tp, pp, cp, tp * pp * cp);
  expect(
      s.world_size % (etp * ep * pp) == 0,
      "world_size {} is not divisible by expert tensor {} x expert {} x pipeline {} = {}. Each replica of the experts "
      "needs that many ranks.",
      s.world_size, etp, ep, pp, etp * ep * pp);
  expect(!s.virtual_pipeline_model_parallel_size || pp > 1,
         "virtual_pipeline_model_parallel_size {} needs pipeline_model_parallel_size of at least 2.",
         s.virtual_pipeline_model_parallel_size.value_or(0));
  const auto& levels = s.hierarchical_context_parallel_sizes;
  const int product = std::accumulate(levels.begin(), levels.end(), 1, std::multiplies<>());
  expect(levels.empty() || product == cp,
         "hierarchical_context_parallel_sizes {} have the product {}, but context_parallel_size is {}.",
         joined(levels, "x"), product, cp);
  throw_if_any(mistakes);

  const int dp_cp = s.world_size / (tp * pp), edp = s.world_size / (etp * ep * pp);
  const int instances = s.num_distributed_optimizer_instances;
  expect(dp_cp % instances == 0 && edp % instances == 0,
         "num_distributed_optimizer_instances {} does not divide data x context {} and expert data {}.", instances,
         dp_cp, edp);
  for (const int rank : s.embedding_ranks)
    expect(rank >= 0 && rank < pp, "embedding_ranks names pipeline rank {}, there are {}.", rank, pp);
  throw_if_any(mistakes);
}

enum class Grid { kDense, kExpert };

RankGrid make_grid(const ParallelSizes& s, Grid grid) {
  const bool is_expert = grid == Grid::kExpert;
  const int tp = is_expert ? expert_tensor_size(s) : s.tensor_model_parallel_size;
  const int ep = is_expert ? s.expert_model_parallel_size : 1, cp = is_expert ? 1 : s.context_parallel_size;
  const int pp = s.pipeline_model_parallel_size;
  const auto size = [&](GridAxis axis) {
    switch (axis) {
      case kTensor:
        return tp;
      case kContext:
        return cp;
      case kExpert:
        return ep;
      case kPipeline:
        return pp;
      case kData:
        break;
    }
    return s.world_size / (tp * ep * cp * pp);
  };
  auto order = parse_order(s.order);
  for (GridAxis axis : {kTensor, kPipeline, kData, kExpert, kContext}) {
    if (std::find(order.begin(), order.end(), axis) != order.end()) continue;
    require<ConfigError>(size(axis) == 1,
                         "[parallel layout] the order \"{}\" leaves out {}, whose size in the {} grid is {}", s.order,
                         name_of(axis), is_expert ? "expert" : "dense", size(axis));
    order.push_back(axis);
  }
  std::vector<RankGrid::Axis> axes;
  axes.reserve(order.size());
  for (GridAxis axis : order) axes.push_back({axis, size(axis)});
  return RankGrid(std::move(axes));
}

ParallelSizes checked(ParallelSizes sizes) {
  check_sizes(sizes);
  return sizes;
}

/// Consecutive runs of `length` members of each group; the last run of a group may be shorter.
RankLists cut(const RankLists& groups, size_t length) {
  RankLists runs;
  for (const auto& ranks : groups)
    for (size_t begin = 0; begin < ranks.size(); begin += length)
      runs.emplace_back(ranks.begin() + static_cast<std::ptrdiff_t>(begin),
                        ranks.begin() + static_cast<std::ptrdiff_t>(std::min(begin + length, ranks.size())));
  return runs;
}

/// Members of each group that differ only in digit `level` of their place, written with these bases, fastest first.
RankLists level_of(const RankLists& groups, const std::vector<int>& sizes, size_t level) {
  std::vector<bool> is_member(sizes.size());
  is_member[level] = true;
  RankLists result;
  for (const auto& ranks : groups)
    for (auto places : grid_groups(sizes, is_member)) {
      for (int& place : places) place = ranks[static_cast<size_t>(place)];
      result.push_back(std::move(places));
    }
  return result;
}

}  // namespace

std::string_view name_of(GroupKind kind) {
  constexpr std::array<std::string_view, 20> kNames{
      "dp_cp",          "intra_dp_cp",   "dp",    "cp", "mp",      "tp",    "pp",       "embd",    "pos_embd",
      "tp_dp_cp",       "tp_dp",         "tp_cp", "ep", "expt_tp", "tp_ep", "tp_ep_pp", "expt_dp", "intra_expt_dp",
      "inter_dist_opt", "intra_dist_opt"};
  return kNames.at(static_cast<size_t>(kind));
}

GroupTraits traits_of(GroupKind kind) {
  switch (kind) {
    case GroupKind::kTp:
    case GroupKind::kPp:
      return {.by_copy_engine = true};
    case GroupKind::kCp:
      return {.by_copy_engine = true, .pairwise = true};
    case GroupKind::kEp:
    case GroupKind::kTpEp:
      return {.pairwise = true};
    default:
      return {};
  }
}

ParallelLayout::ParallelLayout(ParallelSizes sizes)
    : sizes_(checked(std::move(sizes))),
      dense_(make_grid(sizes_, Grid::kDense)),
      expert_(make_grid(sizes_, Grid::kExpert)) {
  std::vector<std::string> mistakes;
  if (dense_.groups({kPipeline}) != expert_.groups({kPipeline}))
    mistakes.push_back(
        fmt::format("with the order \"{}\" the pipeline groups of the dense and the expert grid differ. "
                    "Put pp last.",
                    sizes_.order));
  // Spelled in lower case, as in Megatron: there an order in upper case falls under this rule too.
  const int dp = dense_.size(kData), edp = expert_.size(kData);
  if (!sizes_.order.ends_with("pp") && sizes_.pipeline_model_parallel_size > 1 && dp != edp)
    mistakes.push_back(
        fmt::format("the order \"{}\" does not end in \"pp\"; then expert data parallelism {} must equal "
                    "data parallelism {}. Put pp last.",
                    sizes_.order, edp, dp));
  throw_if_any(mistakes);
}

RankLists ParallelLayout::groups(GroupKind kind) const {
  switch (kind) {
    case GroupKind::kDpCp:
      return dense_.groups({kData, kContext});
    case GroupKind::kIntraDpCp:
      return cut_for_instances(groups(GroupKind::kDpCp));
    case GroupKind::kDp:
      return dense_.groups({kData});
    case GroupKind::kCp:
      return dense_.groups({kContext});
    case GroupKind::kMp:
      return dense_.groups({kTensor, kPipeline});
    case GroupKind::kTp:
      return dense_.groups({kTensor});
    case GroupKind::kPp:
      return dense_.groups({kPipeline});
    case GroupKind::kEmbd: {
      RankLists groups = dense_.groups({kPipeline});
      for (auto& ranks : groups) ranks = embedding_ranks_of(ranks);
      return groups;
    }
    case GroupKind::kPosEmbd: {
      RankLists groups = dense_.groups({kPipeline});
      for (auto& ranks : groups) ranks.resize(1);
      return groups;
    }
    case GroupKind::kTpDpCp:
      return dense_.groups({kTensor, kData, kContext});
    case GroupKind::kTpDp:
      return dense_.groups({kTensor, kData});
    case GroupKind::kTpCp:
      return dense_.groups({kTensor, kContext});
    case GroupKind::kEp:
      return expert_.groups({kExpert});
    case GroupKind::kExptTp:
      return expert_.groups({kTensor});
    case GroupKind::kTpEp:
      return expert_.groups({kTensor, kExpert});
    case GroupKind::kTpEpPp:
      return expert_.groups({kTensor, kExpert, kPipeline});
    case GroupKind::kExptDp:
      return expert_.groups({kData});
    case GroupKind::kIntraExptDp:
      return cut_for_instances(groups(GroupKind::kExptDp));
    case GroupKind::kInterDistOpt:
      return level_of(groups(GroupKind::kExptDp), {expert_.size(kData) / instances(), instances()}, 1);
    case GroupKind::kIntraDistOpt:
      return intra_dist_opt_groups();
  }
  return {};
}

std::vector<int> ParallelLayout::embedding_ranks_of(const std::vector<int>& pipeline) const {
  std::vector<int> places = sizes_.embedding_ranks;
  if (places.empty()) places = {0, static_cast<int>(pipeline.size()) - 1};
  std::set<int> ranks;
  for (const int place : places) ranks.insert(pipeline.at(static_cast<size_t>(place)));
  return {ranks.begin(), ranks.end()};
}

RankLists ParallelLayout::cut_for_instances(const RankLists& groups) const {
  return cut(groups, groups.front().size() / static_cast<size_t>(instances()));
}

/// Consecutive replicas of the experts make an instance.
RankLists ParallelLayout::intra_dist_opt_groups() const {
  const RankLists replicas = groups(GroupKind::kTpEpPp);
  const size_t per_instance = replicas.size() / static_cast<size_t>(instances());
  RankLists result(static_cast<size_t>(instances()));
  for (size_t i = 0; i < replicas.size(); ++i) {
    auto& instance = result[i / per_instance];
    instance.insert(instance.end(), replicas[i].begin(), replicas[i].end());
  }
  return result;
}

std::vector<RankLists> ParallelLayout::hierarchical_cp_groups() const {
  const auto& sizes = sizes_.hierarchical_context_parallel_sizes;
  std::vector<RankLists> levels;
  for (size_t level = 0; level < sizes.size(); ++level)
    levels.push_back(level_of(groups(GroupKind::kCp), sizes, level));
  return levels;
}

std::vector<RankLists> ParallelLayout::hybrid_dp_cp_groups() const {
  std::vector<RankLists> result;
  if (!sizes_.hybrid_context_parallel) return result;
  const RankLists dp_cp = groups(GroupKind::kDpCp);
  for (size_t length = 2; length < dp_cp.front().size(); length *= 2) result.push_back(cut(dp_cp, length));
  return result;
}

}  // namespace megatron
