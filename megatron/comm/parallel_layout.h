// The process groups of a parallel layout as data: pure functions of sizes and order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/group_traits.h"
#include "megatron/comm/rank_grid.h"

namespace megatron {

/// Degrees of parallelism. Names of the fields are Megatron Core's, so that messages can be acted on.
struct ParallelSizes {
  int world_size = 1;
  int tensor_model_parallel_size = 1;
  int pipeline_model_parallel_size = 1;
  int context_parallel_size = 1;
  int expert_model_parallel_size = 1;
  std::optional<int> expert_tensor_parallel_size;  // none: tensor_model_parallel_size
  std::optional<int> virtual_pipeline_model_parallel_size;
  int num_distributed_optimizer_instances = 1;
  std::vector<int> hierarchical_context_parallel_sizes;  // none: no such groups; fastest first
  bool hybrid_context_parallel = false;
  std::vector<int> embedding_ranks;      // pipeline ranks that hold the word embeddings; none: the first and the last
  std::string order = "tp-cp-ep-dp-pp";  // fastest first; axes left out have size 1
};

/// The kinds of groups that need no further parameter. Dense grid unless it says expert.
enum class GroupKind : uint8_t {
  kDpCp,          // dp-cp: gradient reduction
  kIntraDpCp,     // runs of dp_cp, one for each optimizer instance
  kDp,            // data split
  kCp,            // attention's sequence
  kMp,            // tp-pp: one model replica
  kTp,            // tensor
  kPp,            // pipeline; the same in both grids
  kEmbd,          // pipeline stages with word embeddings
  kPosEmbd,       // first pipeline stage
  kTpDpCp,        // all but pipeline
  kTpDp,          // tp-dp
  kTpCp,          // tp-cp
  kEp,            // expert grid: all-to-all of tokens
  kExptTp,        // expert grid: tp
  kTpEp,          // expert grid: tp-ep
  kTpEpPp,        // expert grid: tp-ep-pp
  kExptDp,        // expert grid: dp
  kIntraExptDp,   // runs of expt_dp, one for each optimizer instance
  kInterDistOpt,  // equal places in those runs; for dense parameters too
  kIntraDistOpt   // ranks of one optimizer instance
};
/// Field of ProcessGroupCollection.
std::string_view name_of(GroupKind kind);
/// Tensor and pipeline groups move rows and messages by copy engine; those that exchange tokens or heads use
/// all-to-all.
GroupTraits traits_of(GroupKind kind);

/// Two grids over the same ranks: the dense one with axes tp, cp, dp, pp, and the expert one with axes tp (expert
/// tensor), ep, dp (expert data), pp. They are independent, so that expert parallelism may span tensor, context and
/// data ranks. A value, the same on every rank.
class ParallelLayout {
 public:
  /// @throw ConfigError listing all mistakes: sizes that do not divide the world, grids that do not fit together.
  explicit ParallelLayout(ParallelSizes sizes);

  const ParallelSizes& sizes() const { return sizes_; }
  const RankGrid& dense() const { return dense_; }
  const RankGrid& expert() const { return expert_; }

  /// All groups of a kind. Each rank is in one, except for kEmbd and kPosEmbd, which leave out stages between. With one
  /// optimizer instance kIntraDpCp and kIntraExptDp are whole kDpCp and kExptDp, and kInterDistOpt single ranks.
  RankLists groups(GroupKind kind) const;
  /// Level l of hierarchical context parallelism: ranks of a cp group that differ in digit l of their place.
  std::vector<RankLists> hierarchical_cp_groups() const;
  /// Runs of 2, 4, ... ranks of dp_cp, below all of it; the last run may be shorter. Empty without hybrid context
  /// parallelism. Megatron-LM has them for even numbers of ranks, up to half of the greatest power of two among them.
  std::vector<RankLists> hybrid_dp_cp_groups() const;

 private:
  int instances() const { return sizes_.num_distributed_optimizer_instances; }
  std::vector<int> embedding_ranks_of(const std::vector<int>& pipeline) const;
  RankLists cut_for_instances(const RankLists& groups) const;
  RankLists intra_dist_opt_groups() const;

  ParallelSizes sizes_;
  RankGrid dense_, expert_;
};

}  // namespace megatron
