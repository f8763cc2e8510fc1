#include "megatron/training/expert_metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "megatron/transformer/layer_plan.h"
#include "megatron/transformer/moe/moe_step.h"

namespace megatron {
namespace {

/// One value or several for each layer; null if the step has not counted them.
const std::vector<double>* values_of(const TrainStepResult& result, std::string_view name) {
  const auto found = std::ranges::find(result.metrics, name, &StepMetric::name);
  return found == result.metrics.end() ? nullptr : &found->values;
}

/// Numbers, from 1, of the layers with experts: those of the decoder, and behind them those for further tokens, which
/// are of the kind of its last one.
std::vector<int64_t> layers_with_experts(const TransformerConfig& config) {
  std::vector<int64_t> numbers;
  const LayerPlan plan(config);
  for (int64_t number = 1; number <= plan.num_layers() + config.mtp.num_layers; ++number)
    if (plan.at(std::min(number, plan.num_layers())).feed_forward == FeedForward::kExperts) numbers.push_back(number);
  return numbers;
}

/// The summands of a loss: micro-batches, each once for every rank that has a part of its tokens.
double num_summands(const PretrainConfig& config, const TrainStepResult& result) {
  const int64_t parts = config.parallel.tensor_model_parallel_size * config.parallel.context_parallel_size;
  return static_cast<double>(result.num_micro_batches * parts);
}

void append_loads(std::vector<NamedValue>& metrics, int64_t layer, std::span<const double> tokens) {
  std::vector<double> loads(tokens.begin(), tokens.end());
  std::ranges::sort(loads);
  const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(loads.size());
  if (mean == 0) return;  // every token was dropped
  metrics.push_back({fmt::format("moe/max_load_layer_{}", layer), loads.back() / mean});
  metrics.push_back({fmt::format("moe/median_load_layer_{}", layer), loads[loads.size() / 2] / mean});
  metrics.push_back({fmt::format("moe/min_load_layer_{}", layer), loads.front() / mean});
}

}  // namespace

std::vector<NamedValue> mean_auxiliary_losses(const PretrainConfig& config, const TrainStepResult& result) {
  std::vector<NamedValue> losses;
  const TransformerConfig& model = config.transformer;
  if (!model.moe) return losses;
  const auto num_layers = static_cast<double>(layers_with_experts(model).size());
  for (const std::string_view name : auxiliary_losses(*model.moe))
    if (const std::vector<double>* sums = values_of(result, name))
      losses.push_back({std::string(name), std::accumulate(sums->begin(), sums->end(), 0.0) /
                                               (num_layers * num_summands(config, result))});
  return losses;
}

std::vector<NamedValue> expert_metrics_by_layer(const PretrainConfig& config, const TrainStepResult& result) {
  std::vector<NamedValue> metrics;
  const std::optional<MoeConfig>& moe = config.transformer.moe;
  if (!moe || !moe->per_layer_logging) return metrics;
  const auto e = static_cast<size_t>(moe->num_experts);
  const std::vector<double>* tokens = values_of(result, kTokensPerExpert);
  for (const int64_t number : layers_with_experts(config.transformer)) {
    const int64_t layer = number - 1;
    const auto i = static_cast<size_t>(layer);
    for (const std::string_view name : auxiliary_losses(*moe))
      if (const std::vector<double>* sums = values_of(result, name))
        metrics.push_back({fmt::format("moe/{}_layer_{}", name, layer), sums->at(i) / num_summands(config, result)});
    if (tokens) append_loads(metrics, layer, std::span(*tokens).subspan(i * e, e));
  }
  return metrics;
}

}  // namespace megatron
