// The flags of megatron plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/mistakes.h"
#include "megatron/pipeline_parallel/pipeline_layout.h"
#include "megatron/pipeline_parallel/pipeline_schedule.h"
#include "megatron/pipeline_parallel/simulator.h"

namespace megatron {

/// Times are of one micro-batch on all layers of a rank, so that schedules with few and many chunks are comparable.
struct PlanConfig {
  bool show_schedule = false;
  std::optional<ScheduleKind> schedule;
  int64_t pipeline_model_parallel_size = 1;
  std::optional<int64_t> num_virtual_stages_per_pipeline_rank;
  std::optional<int64_t> microbatch_group_size_per_vp_stage;
  std::optional<int64_t> num_micro_batches;
  bool split_weight_gradient = false;
  bool forward_only = false;

  double forward_time = 1, backward_time = 1, weight_time = 1;
  double send_time = 0;
  double kept_for_weight = 1;

  std::optional<int64_t> num_layers;
  std::optional<int64_t> decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers;
  bool account_for_embedding_in_pipeline_split = false, account_for_loss_in_pipeline_split = false;
  std::optional<std::string> pipeline_model_parallel_layout;
  bool balance_layers = false;
  double embedding_cost = 0;        ///< in decoder layers
  std::optional<double> loss_cost;  ///< in decoder layers; none: from the sizes, or nothing without them
  std::optional<int64_t> hidden_size, ffn_hidden_size, num_attention_heads, num_query_groups, seq_length, vocab_size;
  bool swiglu = false;

  std::optional<std::string> schedule_svg;
  int64_t text_columns = 120;
};

/// The configuration that the flags give.
struct Plan {
  ScheduleOptions schedule;
  std::optional<PipelineLayout> layout;  ///< with --num-layers
  SimulationOptions simulation;
};

/// Reads the arguments of the command. @throw ConfigError with all mistakes
PlanConfig parse_plan(const std::vector<std::string>& args);
/// @throw ConfigError with all mistakes
Plan plan_of(const PlanConfig& config);
/// The times of each virtual stage; one for all without a layout.
std::vector<ActionCosts> stage_costs(const PlanConfig& config, const StagePlacement& placement,
                                     const std::optional<PipelineLayout>& layout);
/// The text that --help, --help WORD or --help=FLAG prints.
std::string plan_help(const std::vector<std::string>& args);

}  // namespace megatron
