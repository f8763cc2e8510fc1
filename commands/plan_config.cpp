#include "commands/plan_config.h"

#include <fmt/core.h>

#include <string_view>

#include "megatron/base/command_help.h"
#include "megatron/base/field.h"
#include "megatron/base/field_needs.h"
#include "megatron/base/flag_parser.h"
#include "megatron/base/word_list.h"
#include "megatron/pipeline_parallel/layout_string.h"
#include "megatron/training/config/flag_synonyms.h"
#include "megatron/training/planning/theoretical_flops.h"
#include "megatron/transformer/transformer_config.h"

namespace megatron {
namespace {

constexpr std::string_view kPlanIntroduction =
    R"(usage: megatron plan --show-schedule --pipeline-model-parallel-size P [flags]

Draws one step of each pipeline rank, without a model or a device: when forwards (F), gradients of inputs (B) and
gradients of weights (W) of each micro-batch run, how long ranks are idle, and how many activations they keep.
'megatron plan --memory' says what a run will hold on each GPU: see 'megatron plan --memory --help'.

  megatron plan --show-schedule --pipeline-model-parallel-size 4 --num-micro-batches 8
  megatron plan --show-schedule --pipeline-model-parallel-size 4 --schedule zb-v --schedule-svg zb_v.svg
  megatron plan --show-schedule --pipeline-model-parallel-size 3 --num-virtual-stages-per-pipeline-rank 2
      --num-layers 43 --balance-layers --hidden-size 2048 --seq-length 4096 --vocab-size 50304

The last one balances the layers so that the slowest rank takes the least time, and prints the flag for pretrain_gpt.

)";

std::string describe_schedules() {
  std::string lines;
  for (const ScheduleTraits& traits : kSchedules) lines += fmt::format("{:<12} {}\n", traits.name, traits.summary);
  return lines + "\n";
}

constexpr double kMostDrawn = 100000;  // actions; more are too small to see
constexpr double kLongestTime = 1e9;   // so that sums and ratios of times stay finite

void describe_schedule(FieldTable& table, PlanConfig& config) {
  table.begin_group("Schedule", "Flags of training have the same meaning here.");
  table.add("show_schedule", config.show_schedule, "draw the pipeline schedule");
  table.add("schedule", config.schedule, "name of the schedule")
      .by_default("interleaved with virtual stages, else 1f1b")
      .named({"--schedule", "--pipeline-schedule"});
  table.add("pipeline_model_parallel_size", config.pipeline_model_parallel_size, "pipeline ranks")
      .at_least(1)
      .at_most(1024);
  table
      .add("num_virtual_stages_per_pipeline_rank", config.num_virtual_stages_per_pipeline_rank,
           "virtual stages of a rank")
      .by_default("2 for interleaved and schedules in a V, else 1")
      .at_least(1)
      .at_most(1024);
  table
      .add("microbatch_group_size_per_vp_stage", config.microbatch_group_size_per_vp_stage,
           "interleaved: consecutive micro-batches on one virtual stage")
      .by_default("the number of ranks")
      .named({"--microbatch-group-size-per-virtual-pipeline-stage"})
      .at_least(1);
  table.add("num_micro_batches", config.num_micro_batches, "micro-batches of a step")
      .by_default("twice the number of ranks")
      .at_least(1)
      .at_most(kMostDrawn)
      .known_as(
          "num-microbatches microbatches micro-batches gradient-accumulation-steps grad-accumulation-steps "
          "accumulation-steps grad-accum gradient-accumulation");
  table.add("split_weight_gradient", config.split_weight_gradient,
            "gpipe, 1f1b, interleaved: run W after B is sent, so that the neighbour does not wait for W");
  table.add("forward_only", config.forward_only, "evaluation");
}

void describe_times(FieldTable& table, PlanConfig& config) {
  table.begin_group("Times",
                    "Times of one micro-batch on all layers of a rank, in any unit; virtual stages share them. With "
                    "--num-layers each stage takes its share of layers.");
  table.add("forward_time", config.forward_time, "F").above(0).at_most(kLongestTime);
  table.add("backward_time", config.backward_time, "B: gradient of the inputs").above(0).at_most(kLongestTime);
  table.add("weight_time", config.weight_time, "W: gradient of the weights").above(0).at_most(kLongestTime);
  table.add("send_time", config.send_time, "time of a send from one rank to the next")
      .at_least(0)
      .at_most(kLongestTime);
  table
      .add("kept_for_weight", config.kept_for_weight,
           "fraction of the activations that stays from B to W; 1: all, the usual count of peaks")
      .at_least(0)
      .at_most(1);
}

void describe_layers(FieldTable& table, PlanConfig& config) {
  const FieldCondition has_layers = [&config] { return config.num_layers.has_value(); };
  table.begin_group("Layers", "Layers of each stage; without --num-layers all stages are equal.");
  table.add("num_layers", config.num_layers, "decoder layers").at_least(1).at_most(1e6);
  table.add("decoder_first_pipeline_num_layers", config.decoder_first_pipeline_num_layers, "layers of the first rank")
      .at_least(1)
      .needs("--num-layers", has_layers);
  table.add("decoder_last_pipeline_num_layers", config.decoder_last_pipeline_num_layers, "layers of the last rank")
      .at_least(1)
      .needs("--num-layers", has_layers);
  table
      .add("account_for_embedding_in_pipeline_split", config.account_for_embedding_in_pipeline_split,
           "count the embedding as a layer of the first stage")
      .needs("--num-layers", has_layers);
  table
      .add("account_for_loss_in_pipeline_split", config.account_for_loss_in_pipeline_split,
           "count output layer and loss as a layer of the last stage")
      .needs("--num-layers", has_layers);
  table
      .add("pipeline_model_parallel_layout", config.pipeline_model_parallel_layout,
           "the stages as text: Et*3|(tt|)*4ttL")
      .needs("--num-layers", has_layers);
  table
      .add("balance_layers", config.balance_layers,
           "balance any number of layers: minimises the time of the slowest rank, given the costs below")
      .needs("--num-layers", has_layers);
  table.add("embedding_cost", config.embedding_cost, "time of the embedding")
      .in("layers")
      .at_least(0)
      .at_most(kLongestTime)
      .needs("--num-layers", has_layers);
  table.add("loss_cost", config.loss_cost, "time of output layer and loss")
      .by_default("from the sizes below")
      .in("layers")
      .at_least(0)
      .at_most(kLongestTime)
      .needs("--num-layers", has_layers);
}

void describe_sizes(FieldTable& table, PlanConfig& config) {
  const FieldCondition has_width = [&config] { return config.hidden_size.has_value(); };
  table.add("hidden_size", config.hidden_size, "to derive --loss-cost from the sizes of the model")
      .at_least(1)
      .needs("--num-layers", [&config] { return config.num_layers.has_value(); });
  table.add("seq_length", config.seq_length, "needed with --hidden-size")
      .in("tokens")
      .at_least(1)
      .needs("--hidden-size", has_width);
  table.add("vocab_size", config.vocab_size, "needed with --hidden-size")
      .in("tokens")
      .at_least(1)
      .needs("--hidden-size", has_width);
  table.add("ffn_hidden_size", config.ffn_hidden_size, "width of the feed-forward")
      .by_default("4 * --hidden-size")
      .at_least(1)
      .needs("--hidden-size", has_width);
  table.add("num_attention_heads", config.num_attention_heads, "needed with --num-query-groups")
      .at_least(1)
      .needs("--hidden-size", has_width);
  table.add("num_query_groups", config.num_query_groups, "heads of keys and values")
      .by_default("all heads")
      .at_least(1)
      .needs("--hidden-size", has_width);
  table.add("swiglu", config.swiglu, "the feed-forward has three matrices").needs("--hidden-size", has_width);
}

/// Checks that the sizes fit together.
void check_sizes(const PlanConfig& config, const GivenFields& given, FieldTable& table, Mistakes& mistakes) {
  for (const std::string_view name : {"seq_length", "vocab_size"})
    if (config.hidden_size && !given.contains(name))
      mistakes.add({table.find(name)->spelling()},
                   "--hidden-size needs {}: the operations of layer and loss depend on it",
                   table.find(name)->spelling());
  if (config.hidden_size && config.loss_cost)
    mistakes.add({"--loss-cost", "--hidden-size"},
                 "--loss-cost and --hidden-size both set the cost of the loss: give one");
  const int64_t heads = config.num_attention_heads.value_or(1), groups = config.num_query_groups.value_or(heads);
  if (config.hidden_size && *config.hidden_size % heads != 0)
    mistakes.add({"--hidden-size", "--num-attention-heads"},
                 "--hidden-size {} is not divisible by --num-attention-heads {}", *config.hidden_size, heads);
  if (config.hidden_size && heads % groups != 0)
    mistakes.add({"--num-query-groups", "--num-attention-heads"},
                 "--num-attention-heads {} is not divisible by --num-query-groups {}", heads, groups);
}

LayerCosts layer_costs(const PlanConfig& config) {
  LayerCosts costs{.embedding = config.embedding_cost, .layer = 1, .head = config.loss_cost.value_or(0)};
  if (!config.hidden_size) return costs;
  TransformerConfig model;
  model.num_layers = 1;
  model.hidden_size = *config.hidden_size;
  model.num_attention_heads = config.num_attention_heads.value_or(1);
  model.num_query_groups = config.num_query_groups.value_or(model.num_attention_heads);
  model.kv_channels = model.hidden_size / model.num_attention_heads;
  model.ffn_hidden_size = config.ffn_hidden_size.value_or(4 * model.hidden_size);
  model.padded_vocab_size = config.vocab_size.value_or(0);
  if (config.swiglu) model.activation_func = ActivationFunc::kSilu;
  model.gated_linear_unit = config.swiglu;
  costs.head = layer_costs_of(model, config.seq_length.value_or(1)).head;
  return costs;
}

FieldTable describe(PlanConfig& config) {
  FieldTable table;
  describe_schedule(table, config);
  describe_times(table, config);
  describe_layers(table, config);
  describe_sizes(table, config);
  table.begin_group("Output", "");
  table.add("schedule_svg", config.schedule_svg, "also write the picture to this file");
  table.add("text_columns", config.text_columns, "width of the text").in("characters").at_least(40).at_most(10000);
  return table;
}

/// Checks that flags share the layers in only one way.
void check_layer_flags(const GivenFields& given, FieldTable& table, Mistakes& mistakes) {
  std::vector<std::string_view> ways;
  for (const std::string_view name : {"balance_layers", "pipeline_model_parallel_layout",
                                      "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers",
                                      "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"})
    if (given.contains(name)) ways.push_back(table.find(name)->spelling());
  const bool is_one_way = !given.contains("balance_layers") && !given.contains("pipeline_model_parallel_layout");
  if (ways.size() > 1 && !is_one_way)
    mistakes.add({"--pipeline-model-parallel-layout", "--balance-layers"},
                 "{} sets the layers of each stage: leave out {}", ways.front(),
                 word_list({ways.begin() + 1, ways.end()}));
}

/// Virtual stages of a rank in the text; 1 if it cannot be parsed.
int chunks_of_text(const PlanConfig& config) {
  if (!config.pipeline_model_parallel_layout || !config.num_layers) return 1;
  Mistakes unread;
  const auto layout = parse_layout(
      *config.pipeline_model_parallel_layout,
      {.num_ranks = static_cast<int>(config.pipeline_model_parallel_size), .num_layers = *config.num_layers}, unread);
  return layout ? layout->placement().num_chunks() : 1;
}

ScheduleOptions schedule_of(const PlanConfig& config) {
  const auto small = [](int64_t number) { return static_cast<int>(number); };  // flags are bounded
  const auto& given = config.num_virtual_stages_per_pipeline_rank;
  const int chunks = given ? small(*given) : chunks_of_text(config);
  ScheduleOptions options;
  options.kind = config.schedule.value_or(chunks > 1 ? ScheduleKind::kInterleaved : ScheduleKind::kOneFOneB);
  options.num_ranks = small(config.pipeline_model_parallel_size);
  const int by_default = config.pipeline_model_parallel_layout ? chunks : 2;  // for interleaved
  options.num_chunks = given ? chunks : traits_of(options.kind).num_chunks.value_or(by_default);
  options.num_micro_batches = small(config.num_micro_batches.value_or(2 * config.pipeline_model_parallel_size));
  if (config.microbatch_group_size_per_vp_stage)
    options.micro_batch_group_size = small(*config.microbatch_group_size_per_vp_stage);
  if (config.split_weight_gradient) options.weight_gradient = WeightGradient::kSplit;
  options.forward_only = config.forward_only;
  return options;
}

/// @param schedule its number of chunks may be wrong: then the advice is for the right one
std::optional<PipelineLayout> layout_of(const PlanConfig& config, ScheduleOptions schedule, Mistakes& mistakes) {
  if (!config.num_layers) return std::nullopt;
  schedule.num_chunks = traits_of(schedule.kind).num_chunks.value_or(schedule.num_chunks);
  const StagePlacement placement = placement_of(schedule);
  if (config.balance_layers) return balanced_layout(*config.num_layers, placement, layer_costs(config));
  if (!config.pipeline_model_parallel_layout)
    return split_layers({.num_layers = *config.num_layers,
                         .placement = placement,
                         .first_rank_layers = config.decoder_first_pipeline_num_layers,
                         .last_rank_layers = config.decoder_last_pipeline_num_layers,
                         .account_for_embedding = config.account_for_embedding_in_pipeline_split,
                         .account_for_loss = config.account_for_loss_in_pipeline_split},
                        mistakes);
  Mistakes own;
  std::optional<PipelineLayout> layout = parse_layout(*config.pipeline_model_parallel_layout,
                                                      {.num_ranks = placement.num_ranks(),
                                                       .num_layers = *config.num_layers,
                                                       .num_mtp_layers = 0,
                                                       .order = placement.order()},
                                                      own);
  std::vector<std::string> reasons = own.texts();
  if (layout && layout->placement() != placement)
    reasons.push_back(
        fmt::format("--pipeline-model-parallel-layout has {} virtual stages for each rank, the schedule {}",
                    layout->placement().num_chunks(), placement.num_chunks()));
  if (reasons.empty()) return layout;
  const bool is_open = !traits_of(schedule.kind).num_chunks;
  if (layout && is_open) {
    mistakes.add({"--pipeline-model-parallel-layout"}, "{}: leave out --num-virtual-stages-per-pipeline-rank",
                 reasons.front());
    return std::nullopt;
  }
  mistakes.add({"--pipeline-model-parallel-layout"}, "{}: give --pipeline-model-parallel-layout '{}'",
               joined(reasons, "; "), to_string(balanced_layout(*config.num_layers, placement, {})));
  return std::nullopt;
}

}  // namespace

PlanConfig parse_plan(const std::vector<std::string>& args) {
  PlanConfig config;
  FieldTable table = describe(config);
  Mistakes mistakes;
  const GivenFields given = parse_flags(table, args, {.synonyms = flag_synonyms()}, mistakes);
  if (!config.show_schedule)
    mistakes.add({"--show-schedule"},
                 "plan needs to know what to show: --show-schedule, or --memory with the flags of a training run");
  check_layer_flags(given, table, mistakes);
  check_sizes(config, given, table, mistakes);
  check_needs(table, given, mistakes);
  const ScheduleOptions schedule = schedule_of(config);
  check_schedule(schedule, mistakes);
  const double actions = 3.0 * schedule.num_ranks * schedule.num_chunks * schedule.num_micro_batches;
  if (actions > kMostDrawn)
    mistakes.add(
        {"--num-micro-batches", "--pipeline-model-parallel-size", "--num-virtual-stages-per-pipeline-rank"},
        "{} ranks with {} virtual stages and {} micro-batches make {:.0f} actions; at most {:.0f} can be drawn. "
        "Schedules repeat: draw fewer ranks or micro-batches",
        schedule.num_ranks, schedule.num_chunks, schedule.num_micro_batches, actions, kMostDrawn);
  layout_of(config, schedule, mistakes);
  mistakes.throw_if_any("the flags are wrong");
  return config;
}

std::vector<ActionCosts> stage_costs(const PlanConfig& config, const StagePlacement& placement,
                                     const std::optional<PipelineLayout>& layout) {
  const auto costs = [&](double share) {
    return ActionCosts{.forward = config.forward_time * share,
                       .backward = config.backward_time * share,
                       .weight = config.weight_time * share};
  };
  if (!layout) return {costs(1.0 / placement.num_chunks())};
  const double layers_of_rank = static_cast<double>(layout->num_layers()) / placement.num_ranks();
  const LayerCosts parts = layer_costs(config);
  std::vector<ActionCosts> all;
  for (const StageLayers& stage : layout->stages())
    all.push_back(costs((static_cast<double>(stage.num_layers) + (stage.has_embedding ? parts.embedding : 0) +
                         (stage.has_head ? parts.head : 0)) /
                        layers_of_rank));
  return all;
}

Plan plan_of(const PlanConfig& config) {
  Plan plan{.schedule = schedule_of(config), .layout = std::nullopt, .simulation = {}};
  const StagePlacement placement = placement_of(plan.schedule);
  Mistakes mistakes;
  plan.layout = layout_of(config, plan.schedule, mistakes);
  mistakes.throw_if_any("the flags are wrong");
  plan.simulation = {.costs = stage_costs(config, placement, plan.layout),
                     .send_latency = config.send_time,
                     .kept_for_weight = config.kept_for_weight};
  return plan;
}

std::string plan_help(const std::vector<std::string>& args) {
  PlanConfig defaults;
  const FieldTable table = describe(defaults);
  return help_text({.command = "megatron plan",
                    .introduction = std::string(kPlanIntroduction) + describe_schedules(),
                    .table = table},
                   args);
}

}  // namespace megatron
