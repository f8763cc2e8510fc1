#include "megatron/training/planning/memory_advice.h"

#include <fmt/core.h>

#include <vector>

namespace megatron {
namespace {

constexpr int kMostLines = 5;

struct Change {
  std::string flags, what;
};

/// Micro-batches of half, a quarter, ... as large, and layouts of as many ranks with half the replicas.
void add_sizes(const PretrainConfig& config, std::vector<Change>& changes) {
  for (int64_t b = config.training.micro_batch_size.value() / 2; b >= 1; b /= 2)
    changes.push_back({fmt::format("--micro-batch-size {}", b), "the same global batch in smaller micro-batches"});
  const ParallelConfig& parallel = config.parallel;
  const int64_t more_ranks = parallel.data_parallel_size % 2 == 0 ? 1 : 2;
  const std::string ranks =
      more_ranks == 1 ? "" : fmt::format(" --nproc-per-node {}", parallel.world_size * more_ranks);
  const std::string note = more_ranks == 1 ? "half the replicas" : fmt::format("{} GPUs", parallel.world_size * 2);
  if (more_ranks > 1 && parallel.world_size > 1) return;  // a launcher gives the number of ranks
  changes.push_back({fmt::format("--tensor-model-parallel-size {} --sequence-parallel{}",
                                 2 * parallel.tensor_model_parallel_size, ranks),
                     note});
  changes.push_back(
      {fmt::format("--pipeline-model-parallel-size {}{}", 2 * parallel.pipeline_model_parallel_size, ranks), note});
}

std::vector<Change> changes_of(const PretrainConfig& config) {
  const std::string full = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1";
  std::vector<Change> changes;
  if (config.parallel.data_parallel_size > 1 && !config.optimizer.use_distributed_optimizer)
    changes.push_back({"--use-distributed-optimizer", "the optimizer's state split over the replicas"});
  if (config.transformer.recompute_granularity == RecomputeGranularity::kNone)
    changes.push_back({"--recompute-activations", "attention computed again in the backward pass"});
  if (config.transformer.recompute_granularity != RecomputeGranularity::kFull)
    changes.push_back({full, "layers computed again in the backward pass"});
  add_sizes(config, changes);
  if (!config.optimizer.optimizer_cpu_offload)
    changes.push_back({"--optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d",
                       "the optimizer's state in host memory, where the host steps it"});
  if (config.transformer.params_dtype != DType::kBFloat16) return changes;
  const std::string ten =
      "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --main-grads-dtype bf16";
  const std::string eight = ten + " --main-params-dtype bf16";
  changes.push_back({ten, "10 bytes a parameter"});
  changes.push_back({eight, "8 bytes a parameter"});
  changes.push_back({eight + " --micro-batch-size 1 " + full, "all of these together"});
  return changes;
}

}  // namespace

std::string memory_advice(const PretrainConfig& config, const ConfigWithFlags& with_flags, const PlannedBytes& planned,
                          int64_t available_bytes) {
  constexpr double kMebibyte = 1 << 20;
  std::string text;
  int num_lines = 0;
  for (const Change& change : changes_of(config)) {
    if (num_lines == kMostLines) break;
    const std::optional<PretrainConfig> changed = with_flags(change.flags);
    if (!changed) continue;
    const int64_t bytes = planned(*changed);
    if (bytes > available_bytes) continue;
    text +=
        fmt::format("\n  {:.0f} MiB with {}  ({})", static_cast<double>(bytes) / kMebibyte, change.flags, change.what);
    ++num_lines;
  }
  if (text.empty())
    return "None of these fits alone: recompute, smaller micro-batches, twice the GPUs, 10 or 8 bytes a parameter. "
           "Take more GPUs or a smaller model.";
  return "What fits by the same plan, each added to the flags of this run:" + text;
}

}  // namespace megatron
