// Rules of the pipeline: how many virtual stages, and which layers they have. Each mistake is judged as if the advice
// of those before it had been taken, so that all of it together works.
#include <fmt/core.h>

#include <algorithm>

#include "megatron/base/word_list.h"
#include "megatron/pipeline_parallel/layout_string.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/config/rules.h"

namespace megatron {
namespace {

constexpr std::string_view kPipelineSize = "--pipeline-model-parallel-size",
                           kLayout = "--pipeline-model-parallel-layout",
                           kLayersOfStage = "--num-layers-per-virtual-pipeline-stage",
                           kStagesOfRank = "--num-virtual-stages-per-pipeline-rank",
                           kNoOverlap = "--no-overlap-p2p-communication";

/// The given flags that set the number of a rank's virtual stages.
std::vector<std::string_view> chunk_flags(const ParallelConfig& parallel) {
  std::vector<std::string_view> flags;
  if (parallel.num_layers_per_virtual_pipeline_stage) flags.push_back(kLayersOfStage);
  if (parallel.num_virtual_stages_per_pipeline_rank) flags.push_back(kStagesOfRank);
  return flags;
}

LayerSplit split_of(const PretrainConfig& config, int64_t num_layers, int64_t num_chunks) {
  LayerSplit split = layer_split_of(config);
  split.num_layers = num_layers;
  split.placement = {split.placement.num_ranks(), static_cast<int>(num_chunks), split.placement.order()};
  split.chunk_flags = chunk_flags(config.parallel);
  split.num_layers_sets_chunks = config.parallel.num_layers_per_virtual_pipeline_stage.has_value();
  return split;
}

int64_t chunks_without_flags(const ParallelConfig& parallel) {
  return parallel.pipeline_schedule ? traits_of(*parallel.pipeline_schedule).num_chunks.value_or(2) : 1;
}

/// The number of virtual stages that the schedule demands, if it does.
std::optional<int64_t> chunks_of_schedule(const ParallelConfig& parallel) {
  if (!parallel.pipeline_schedule) return std::nullopt;
  return traits_of(*parallel.pipeline_schedule).num_chunks;
}

/// Virtual stages of a rank.
struct Chunks {
  int64_t number = 1;
  bool has_split = true;  // false: how the layers are shared is a mistake already
};

/// --num-layers does not divide by stages of this many layers. @return the most of those that are advised
Chunks refuse_stage_size(const PretrainConfig& config, Mistakes& mistakes) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t layers = config.transformer.num_layers, pp = parallel.pipeline_model_parallel_size;
  const int64_t of_all_ranks = pp * *parallel.num_layers_per_virtual_pipeline_stage, lower = layers / of_all_ranks;
  const std::optional<int64_t> demanded = chunks_of_schedule(parallel);
  const auto accepts = [&](int64_t chunks) {
    Mistakes none;
    return chunks >= 1 && chunks == demanded.value_or(chunks) &&
           split_layers(split_of(config, chunks * of_all_ranks, chunks), none).has_value();
  };
  int64_t chunks = demanded.value_or(std::max<int64_t>(1, lower));
  std::string advice = layout_advice(split_of(config, layers, chunks));
  const int64_t other = accepts(lower) ? lower : lower + 1;
  if (accepts(other)) {
    advice = fmt::format("give --num-layers {}, or {}", other * of_all_ranks, advice);
    chunks = std::max(chunks, other);
  }
  mistakes.add({"--num-layers", kLayersOfStage, kPipelineSize}, "--num-layers {} does not divide by {} {} * {} {}: {}",
               layers, kPipelineSize, pp, kLayersOfStage, *parallel.num_layers_per_virtual_pipeline_stage, advice);
  return {chunks, false};
}

/// The number of virtual stages that the flags ask for.
Chunks asked_chunks(const PretrainConfig& config, Mistakes& mistakes) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t layers = config.transformer.num_layers, pp = parallel.pipeline_model_parallel_size;
  const auto& layers_of_stage = parallel.num_layers_per_virtual_pipeline_stage;
  const auto& stages_of_rank = parallel.num_virtual_stages_per_pipeline_rank;
  if (layers_of_stage && stages_of_rank)
    mistakes.add({kLayersOfStage, kStagesOfRank}, "{} {} and {} {} say the same twice: leave out {}", kLayersOfStage,
                 *layers_of_stage, kStagesOfRank, *stages_of_rank, kLayersOfStage);
  if (stages_of_rank) return {*stages_of_rank};
  if (!layers_of_stage) return {pp > 1 ? chunks_without_flags(parallel) : 1};
  if (layers == 0) return {};
  if (pp == 1 && *layers_of_stage != layers) {
    mistakes.add({kPipelineSize, kLayersOfStage}, "{} {}: virtual stages need {} 2 or more, got 1. Leave out {}",
                 kLayersOfStage, *layers_of_stage, kPipelineSize, kLayersOfStage);
    return {};
  }
  if (layers % (pp * *layers_of_stage) == 0) return {layers / (pp * *layers_of_stage)};
  return refuse_stage_size(config, mistakes);
}

/// Resolves layers that are given by counts: sets the number of virtual stages.
void resolve_counts(PretrainConfig& config, Mistakes& mistakes) {
  ParallelConfig& parallel = config.parallel;
  const int64_t pp = parallel.pipeline_model_parallel_size, layers = config.transformer.num_layers;
  const std::vector<std::string_view> flags = chunk_flags(parallel);
  const Chunks asked = asked_chunks(config, mistakes);
  const std::optional<int64_t> demanded = chunks_of_schedule(parallel);
  int64_t chunks = asked.number;
  if (asked.has_split && demanded && asked.number != *demanded && !flags.empty() && (pp > 1 || asked.number > 1)) {
    mistakes.add({kStagesOfRank, kLayersOfStage, kPipelineSize},
                 "{} asks for {} virtual stage{} of a rank, but {}: leave out {}", flags.back(), asked.number,
                 asked.number == 1 ? "" : "s", describe_chunks(*parallel.pipeline_schedule), word_list(flags));
    chunks = *demanded;
  }
  if (asked.number > 1 && pp == 1)
    mistakes.add({kPipelineSize, kLayersOfStage, kStagesOfRank},
                 "{} virtual stages need {} 2 or more, got 1: leave out {}", asked.number, kPipelineSize,
                 word_list(flags));
  if (pp == 1) chunks = 1;
  const LayerSplit split = split_of(config, layers, chunks);
  if (asked.has_split && layers > 0) split_layers(split, mistakes);
  if (flags.empty() && chunks > 1) parallel.num_virtual_stages_per_pipeline_rank = chunks;
  parallel.virtual_pipeline_model_parallel_size = chunks > 1 ? std::optional(chunks) : std::nullopt;
}

/// The given flags that a layout replaces.
std::vector<std::string_view> other_flags(const ParallelConfig& parallel) {
  std::vector<std::string_view> flags = chunk_flags(parallel);
  if (parallel.decoder_first_pipeline_num_layers) flags.emplace_back("--decoder-first-pipeline-num-layers");
  if (parallel.decoder_last_pipeline_num_layers) flags.emplace_back("--decoder-last-pipeline-num-layers");
  if (parallel.account_for_embedding_in_pipeline_split) flags.emplace_back("--account-for-embedding-in-pipeline-split");
  if (parallel.account_for_loss_in_pipeline_split) flags.emplace_back("--account-for-loss-in-pipeline-split");
  return flags;
}

/// A layout that works, over about as many virtual stages as `text` has.
PipelineLayout advised_layout(const PretrainConfig& config, const std::string& text, int64_t num_layers) {
  const int64_t pp = config.parallel.pipeline_model_parallel_size, bars = std::count(text.begin(), text.end(), '|');
  const int64_t alike = std::max<int64_t>(1, (bars + 1 + pp / 2) / pp);
  const LayerSplit split = split_of(config, num_layers, chunks_of_schedule(config.parallel).value_or(alike));
  return balanced_layout(num_layers, split.placement, {});
}

/// Resolves layers that are given as text: sets the number of virtual stages.
void resolve_layout(PretrainConfig& config, Mistakes& mistakes) {
  ParallelConfig& parallel = config.parallel;
  const int64_t pp = parallel.pipeline_model_parallel_size, num_layers = config.transformer.num_layers;
  const std::string& text = *parallel.pipeline_model_parallel_layout;
  if (const std::vector<std::string_view> others = other_flags(parallel); !others.empty())
    mistakes.add({kLayout, kLayersOfStage, kStagesOfRank}, "{} {} says which layers each stage has: leave out {}",
                 kLayout, text, word_list(others));
  if (num_layers == 0) return;
  Mistakes own;
  const LayoutStringOptions options{.num_ranks = static_cast<int>(pp),
                                    .num_layers = num_layers,
                                    .num_mtp_layers = config.transformer.mtp.num_layers,
                                    .order = placement_of(schedule_options_of(config)).order()};
  const std::optional<PipelineLayout> layout = parse_layout(text, options, own);
  std::vector<std::string> reasons = own.texts();
  int64_t chunks = layout ? layout->placement().num_chunks() : 1;
  const std::optional<int64_t> demanded = chunks_of_schedule(parallel);
  if (layout && pp == 1 && chunks > 1)
    reasons.push_back(fmt::format("{} virtual stages need {} 2 or more, got 1", chunks, kPipelineSize));
  else if (layout && pp > 1 && demanded && chunks != *demanded)
    reasons.push_back(fmt::format("{} has {} virtual stages for each rank, but {}", kLayout, chunks,
                                  describe_chunks(*parallel.pipeline_schedule)));
  if (!reasons.empty() && pp == 1) {
    mistakes.add({kLayout, "--num-layers", kPipelineSize}, "{}: leave out {}", joined(reasons, "; "), kLayout);
    chunks = 1;
  } else if (!reasons.empty()) {
    PipelineLayout advised = advised_layout(config, text, num_layers);
    advised.set_mtp_layers(advised.placement().num_stages() - 1, config.transformer.mtp.num_layers);
    mistakes.add({kLayout, "--num-layers", kPipelineSize}, "{}: give {} '{}'", joined(reasons, "; "), kLayout,
                 to_string(advised));
    chunks = advised.placement().num_chunks();
  }
  parallel.virtual_pipeline_model_parallel_size = chunks > 1 ? std::optional(chunks) : std::nullopt;
}

}  // namespace

void resolve_pipeline(PretrainConfig& config, Mistakes& mistakes) {
  ParallelConfig& parallel = config.parallel;
  const int64_t pp = parallel.pipeline_model_parallel_size;
  const bool has_layout = parallel.pipeline_model_parallel_layout.has_value();
  const bool is_interleaved =
      parallel.pipeline_schedule.value_or(ScheduleKind::kInterleaved) == ScheduleKind::kInterleaved;
  has_layout ? resolve_layout(config, mistakes) : resolve_counts(config, mistakes);
  const bool has_chunks = parallel.virtual_pipeline_model_parallel_size.has_value();
  if (has_chunks && pp == 2 && !parallel.overlap_p2p_comm && is_interleaved)
    mistakes.add({kPipelineSize, kLayersOfStage, kStagesOfRank, kNoOverlap},
                 "{} virtual stages need {} 3 or more without overlapped sends, got 2: leave out {}",
                 *parallel.virtual_pipeline_model_parallel_size, kPipelineSize, kNoOverlap);
  if (!has_chunks) parallel.overlap_p2p_comm = parallel.align_param_gather = false;
}

}  // namespace megatron
