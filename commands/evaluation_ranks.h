// How the ranks of megatron generate and megatron eval share a model.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "commands/evaluation.h"
#include "commands/launch/command_ranks.h"

namespace megatron {

/// The flags that say how. All ranks compute the same tokens, each its part of the model.
struct EvaluationLayout {
  int64_t tensor_model_parallel_size = 1, pipeline_model_parallel_size = 1, expert_model_parallel_size = 1;
  int64_t context_parallel_size = 1;
  std::optional<int64_t> expert_tensor_parallel_size, num_virtual_stages_per_pipeline_rank;
  std::optional<std::string> pipeline_model_parallel_layout;
};
void add_fields(FieldTable& table, EvaluationLayout& layout);
void check(const EvaluationLayout& layout, Mistakes& mistakes);

/// The part of a configuration that says where and how `network` runs.
/// @throw ConfigError if the model cannot be shared so, or if a launcher has started another number of ranks.
PretrainConfig config_of_ranks(const EvaluationLayout& layout, const EvaluationDevice& device,
                               const PretrainConfig& model, const LaunchEnvironment& launch);

/// Calls `run` on this process's rank or ranks. Rank 0 alone should print.
/// @param config  of config_of_ranks()
void run_evaluation(const PretrainConfig& config, const CommandRanks& ranks, const OwnRank& own, std::ostream& err,
                    const std::function<void(const EvaluationRank&)>& run);

}  // namespace megatron
