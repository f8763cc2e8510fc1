#include "commands/evaluation_ranks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "commands/launch/rank_thread_failures.h"
#include "megatron/pipeline_parallel/layout_string.h"
#include "megatron/training/config/layouts.h"

namespace megatron {
namespace {

constexpr int64_t kMostRanks = 1024;

void require_experts(const ParallelConfig& parallel, const TransformerConfig& network) {
  const int64_t ep = parallel.expert_model_parallel_size;
  if (!network.moe) {
    require<ConfigError>(ep == 1,
                         "--expert-model-parallel-size {}: the model has no experts. Leave the flag out; "
                         "--tensor-model-parallel-size and --pipeline-model-parallel-size share a dense model.",
                         ep);
    return;
  }
  const int64_t num_experts = network.moe->num_experts;
  require<ConfigError>(num_experts % ep == 0,
                       "--expert-model-parallel-size {}: {} experts are not divisible by {}. Each rank has equally "
                       "many: give a divisor of {}.",
                       ep, num_experts, ep, num_experts);
}

/// Data-parallel ranks are there for the experts alone: as few as their grid needs.
int64_t num_replicas(const ParallelConfig& parallel, bool has_experts) {
  if (!has_experts) return 1;
  const int64_t tp = parallel.tensor_model_parallel_size;
  const int64_t of_experts = parallel.expert_model_parallel_size * parallel.expert_tensor_parallel_size.value_or(tp);
  return std::lcm(tp, of_experts) / tp;
}

}  // namespace

void add_fields(FieldTable& table, EvaluationLayout& layout) {
  table.begin_group("Ranks",
                    "They have a GPU each where there are as many, and are threads of this process otherwise; a "
                    "launcher may start them too. The tokens are those of one rank.");
  const auto add = [&](std::string_view name, auto& member, std::string_view text) -> Field& {
    return table.add(name, member, text).at_least(1).at_most(kMostRanks);
  };
  add("tensor_model_parallel_size", layout.tensor_model_parallel_size, "ranks that share each layer").known_as("tp");
  add("pipeline_model_parallel_size", layout.pipeline_model_parallel_size,
      "stages of layers, each with ranks of its own")
      .known_as("pp");
  add("num_virtual_stages_per_pipeline_rank", layout.num_virtual_stages_per_pipeline_rank,
      "stages that a pipeline rank has")
      .by_default("1");
  table
      .add("pipeline_model_parallel_layout", layout.pipeline_model_parallel_layout,
           "the layers of each stage as text: Et*3|t*4L")
      .by_default("equal stages");
  add("expert_model_parallel_size", layout.expert_model_parallel_size, "ranks that share the experts of a layer")
      .known_as("ep");
  add("expert_tensor_parallel_size", layout.expert_tensor_parallel_size, "ranks that share each expert")
      .by_default("--tensor-model-parallel-size");
  add("context_parallel_size", layout.context_parallel_size, "1: ranks do not share a sequence here");
}

void check(const EvaluationLayout& layout, Mistakes& mistakes) {
  const int64_t pp = layout.pipeline_model_parallel_size, cp = layout.context_parallel_size;
  const int64_t chunks = layout.num_virtual_stages_per_pipeline_rank.value_or(1);
  if (cp > 1)
    mistakes.add({"--context-parallel-size"},
                 "--context-parallel-size {}: a generated text has one new token at a time, which ranks cannot share. "
                 "Leave the flag out; more ranks share a model by --tensor-model-parallel-size or "
                 "--pipeline-model-parallel-size",
                 cp);
  if (chunks > 1 && pp == 1)
    mistakes.add({"--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-size"},
                 "{} virtual stages need --pipeline-model-parallel-size 2 or more, got 1: leave out "
                 "--num-virtual-stages-per-pipeline-rank",
                 chunks);
  if (layout.pipeline_model_parallel_layout && layout.num_virtual_stages_per_pipeline_rank)
    mistakes.add({"--pipeline-model-parallel-layout", "--num-virtual-stages-per-pipeline-rank"},
                 "--pipeline-model-parallel-layout says which layers each stage has: leave out "
                 "--num-virtual-stages-per-pipeline-rank");
  if (layout.pipeline_model_parallel_layout && pp == 1)
    mistakes.add(
        {"--pipeline-model-parallel-layout", "--pipeline-model-parallel-size"},
        "--pipeline-model-parallel-layout needs --pipeline-model-parallel-size 2 or more, got 1: leave it out");
}

PretrainConfig config_of_ranks(const EvaluationLayout& layout, const EvaluationDevice& device,
                               const PretrainConfig& model, const LaunchEnvironment& launch) {
  PretrainConfig config;
  config.family = model.family;
  config.transformer = model.transformer;
  config.transformer.cudnn_attention_dropout = false;
  ParallelConfig& parallel = config.parallel;
  parallel.tensor_model_parallel_size = layout.tensor_model_parallel_size;
  parallel.pipeline_model_parallel_size = layout.pipeline_model_parallel_size;
  parallel.expert_model_parallel_size = layout.expert_model_parallel_size;
  parallel.expert_tensor_parallel_size = layout.expert_tensor_parallel_size.value_or(layout.tensor_model_parallel_size);
  parallel.pipeline_model_parallel_layout = layout.pipeline_model_parallel_layout;
  const int64_t chunks = layout.num_virtual_stages_per_pipeline_rank.value_or(1);
  if (chunks > 1) parallel.virtual_pipeline_model_parallel_size = chunks;
  if (config.transformer.moe) config.experts.num_experts = config.transformer.moe->num_experts;
  require_experts(parallel, config.transformer);
  const StagePlacement placement = pipeline_layout_of(config).placement();
  if (placement.num_chunks() > 1) parallel.virtual_pipeline_model_parallel_size = placement.num_chunks();
  parallel.data_parallel_size = num_replicas(parallel, config.transformer.moe.has_value());
  parallel.world_size = parallel.tensor_model_parallel_size * placement.num_ranks() * parallel.data_parallel_size;
  require<ConfigError>(launch.size == 1 || launch.size == parallel.world_size,
                       "the flags share the model among {} ranks, but the launcher has started {}. Start {}, or change "
                       "--tensor-model-parallel-size or --pipeline-model-parallel-size.",
                       parallel.world_size, launch.size, parallel.world_size);
  config.launch.device = device.device;
  config.launch.num_threads = device.num_threads;
  if (launch.size == 1) config.launch.nproc_per_node = parallel.world_size;
  return config;
}

void run_evaluation(const PretrainConfig& config, const CommandRanks& ranks, const OwnRank& own, std::ostream& err,
                    const std::function<void(const EvaluationRank&)>& run) {
  const ParallelLayout layout = parallel_layout_of(config);
  const auto run_rank = [&](World* world) {
    EvaluationRank rank{.device = ranks.device.kind,
                        .cuda_device = ranks.device.cuda_device,
                        .num_threads = ranks.num_threads,
                        .gpu_ranks = own.gpu_ranks};
    if (world) rank.groups = ProcessGroupCollection::make(*world, layout);
    rank.stages = pipeline_layout_of(config);
    run(rank);
  };
  if (own.world || ranks.num_ranks == 1) return run_rank(own.world);
  ThreadWorld threads(ranks.num_ranks, ranks.timeout);
  run_rank_threads(threads, [&](World& world) { run_rank(&world); },
                   {.on_failure = {}, .on_hang = report_and_end(ranks.words.front(), err).on_hang});
}

}  // namespace megatron
