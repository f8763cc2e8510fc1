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

/// The summands of a loss: micro-batches, each once for every rank that has a part of its tokens.
double num_summands(const PretrainConfig& config, const TrainStepResult& result) {
  const int64_t parts = config.parallel.tensor_model_parallel_size * config.parallel.context_parallel_size;
  return static_cast<double>(result.num_micro_batches * parts);
}

/// @param layer_number from 1; layers behind the decoder included
bool has_experts(const TransformerConfig& config, int64_t layer_number) {
  return layer_kind(config, layer_number).feed_forward == FeedForward::kExperts;
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
  const LayerPlan plan(model);
  const int64_t further = has_experts(model, model.num_all_layers()) ? model.mtp.num_layers : 0;
  const auto num_layers = static_cast<double>(plan.count(FeedForward::kExperts) + further);
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
  for (int64_t layer = 0; layer < config.transformer.num_all_layers(); ++layer) {
    if (!has_experts(config.transformer, layer + 1)) continue;
    const auto i = static_cast<size_t>(layer);
    for (const std::string_view name : auxiliary_losses(*moe))
      if (const std::vector<double>* sums = values_of(result, name))
        metrics.push_back({fmt::format("moe/{}_layer_{}", name, layer), sums->at(i) / num_summands(config, result)});
    if (tokens) append_loads(metrics, layer, std::span(*tokens).subspan(i * e, e));
  }
  return metrics;
}

}  // namespace megatron
