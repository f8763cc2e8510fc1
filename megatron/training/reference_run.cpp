#include "megatron/training/reference_run.h"

#include <algorithm>
#include <cmath>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/core/copy.h"

namespace megatron {
namespace {

/// Length of the longest way of sums through a step: through norms, projections and attention of all layers there and
/// back, then over the tokens of the step and the vocabulary.
int64_t reduction_length(const TransformerConfig& config, int64_t s, int64_t num_tokens) {
  const int64_t h = config.hidden_size, heads = config.num_attention_heads * config.kv_channels;
  const int64_t norms = 2 * h, projections = 2 * h + heads + config.ffn_hidden_size;
  const int64_t there = config.num_layers * (norms + projections + config.kv_channels + s) + 2 * h;
  return 2 * there + num_tokens + config.vocab_size;
}

int64_t num_positions_of(const GlobalBatch& batch) {
  int64_t num_positions = 0;
  for (const MicroBatch<int64_t>& part : batch) num_positions += part.num_samples * part.sequence_length;
  return num_positions;
}

ReferenceTensor copy_of(Device& device, const Parameter& parameter, const Tensor& tensor) {
  ReferenceTensor copy;
  const int64_t size = tensor.num_elements(), rows = parameter.options().shard.unpadded_rows;
  copy.num_elements = rows > 0 ? size / tensor.size(0) * rows : size;
  copy.values = elements_of(device, tensor);
  copy.values.resize(static_cast<size_t>(copy.num_elements));
  for (double value : copy.values) copy.largest = std::max(copy.largest, std::abs(value));
  return copy;
}

/// Adam moves a weight by lr * u, u = m / (sqrt(v) + eps). An error d of the gradient changes u by at most
/// (1 + |u|) / (sqrt(v) + eps) * d, and |u| is below 3 in the first steps.
constexpr double kMostAdamMoves = 1 + 3;

}  // namespace

std::vector<double> elements_of(Device& device, const Tensor& tensor) {
  if (tensor.dtype() == DType::kFloat64) return read_values<double>(device, tensor);
  const std::vector<float> values = read_values<float>(device, tensor);
  return {values.begin(), values.end()};
}

ReferenceRun::ReferenceRun(const PretrainConfig& config, std::vector<GlobalBatch> batches)
    : batches_(std::move(batches)) {
  const DType dtype = config.transformer.params_dtype;
  require<NotSupported>(dtype == DType::kFloat64 || dtype == DType::kFloat32,
                        "[verify] weights of {} are rounded so coarsely that a fault would not stand out. Compare in "
                        "fp64 (--fp64).",
                        name_of(dtype));
  eps_ = epsilon(dtype);
  const GlobalBatch& first = batches_.at(0);
  sqrt_length_ = std::sqrt(
      static_cast<double>(reduction_length(config.transformer, first.at(0).sequence_length, num_positions_of(first))));
  Trainer trainer(config, {.num_threads = threads_per_rank(1)});
  for (const Parameter* parameter : trainer.model().parameters()) names_.push_back(parameter->name());
  keep_weights(trainer);
  for (const GlobalBatch& batch : batches_) {
    double learning_rate = 0;
    for (const ParamGroup& group : trainer.optimizer().groups())
      learning_rate = std::max(learning_rate, trainer.scheduler().lr(group.schedule));
    const TrainStepResult result = trainer.train_step(batch);
    steps_.back().loss = result.loss.mean();
    steps_.back().grad_norm = result.optimizer.grad_norm;
    require<Error>(std::isfinite(steps_.back().loss) && std::isfinite(steps_.back().grad_norm),
                   "[verify] one rank has loss {} and gradient norm {} in step {}: there is nothing to compare with. "
                   "Lower --lr or look at the data.",
                   steps_.back().loss, steps_.back().grad_norm, steps_.size());
    keep_gradients(trainer);
    keep_weights(trainer);
    keep_sensitivity(trainer, learning_rate);
  }
}

double ReferenceRun::largest_grad_norm() const {
  return std::ranges::max_element(steps_, {}, &ReferenceStep::grad_norm)->grad_norm;
}

/// Begins a step.
void ReferenceRun::keep_weights(Trainer& trainer) {
  ReferenceStep& step = steps_.emplace_back();
  for (const Parameter* parameter : trainer.model().parameters())
    step.weights.emplace(parameter->name(), copy_of(trainer.device(), *parameter, parameter->value()));
}

void ReferenceRun::keep_gradients(Trainer& trainer) {
  for (Parameter* parameter : trainer.model().parameters())
    if (parameter->main_grad().defined())
      steps_.back().gradients.emplace(parameter->name(), copy_of(trainer.device(), *parameter, parameter->main_grad()));
}

/// Of the weights that the last step begins with.
void ReferenceRun::keep_sensitivity(Trainer& trainer, double learning_rate) {
  const ReferenceStep& before = *(steps_.end() - 2);
  const OptimizerConfig& config = trainer.optimizer().config();
  const double clip = config.clip_grad > 0 ? std::min(1.0, config.clip_grad / before.grad_norm) : 1;
  const double unbias = 1 / (1 - std::pow(config.adam_beta2, static_cast<double>(trainer.optimizer().num_steps())));
  for (const OptimizerState& state : trainer.optimizer().states()) {
    const std::string& name = state.parameter->name();
    const ReferenceTensor& gradient = before.gradients.at(name);
    const double error = relative_bound(1) * gradient.largest * clip;  // of an element of the gradient
    std::vector<float> sums(gradient.values.size());
    std::vector<double> variances;
    if (state.exp_avg_sq.defined()) variances = elements_of(trainer.device(), state.exp_avg_sq);
    if (const auto old = before.weight_sensitivity.find(name); old != before.weight_sensitivity.end())
      sums = old->second;
    for (size_t i = 0; i < sums.size(); ++i) {
      double moves = 1 / (1 - config.sgd_momentum);
      if (!variances.empty()) moves = kMostAdamMoves / (std::sqrt(variances[i] * unbias) + config.adam_eps);
      sums[i] += static_cast<float>(learning_rate * moves * error);
    }
    steps_.back().weight_sensitivity.emplace(name, std::move(sums));
  }
}

}  // namespace megatron
