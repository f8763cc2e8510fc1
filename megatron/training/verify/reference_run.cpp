#include "megatron/training/verify/reference_run.h"

#include <algorithm>
#include <cmath>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/core/copy.h"
#include "megatron/training/family_batches.h"

namespace megatron {
namespace {

/// Length of the longest way of sums through a step: through norms, projections and attention of all layers there and
/// back, then over the tokens of the step and the vocabulary.
int64_t reduction_length(const TransformerConfig& config, int64_t s, int64_t num_tokens) {
  const int64_t h = config.hidden_size;
  int64_t head = config.kv_channels, latents = 0;
  if (config.mla) {
    head = config.mla->qk_head_dim + config.mla->qk_pos_emb_head_dim + config.mla->v_head_dim;
    latents = 2 * (config.mla->kv_lora_rank + config.mla->q_lora_rank.value_or(0));  // projections and norms
  }
  const int64_t norms = 2 * h + latents;
  const int64_t projections = 2 * h + config.num_attention_heads * head + config.ffn_hidden_size;
  const int64_t there = (config.num_layers + 2 * config.mtp.num_layers) * (norms + projections + head + s) + 2 * h;
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

/// Keeps how far a disturbed run's tensor is from the reference's, if farther than those before.
void measure(Device& device, const Tensor& disturbed, ReferenceTensor& reference) {
  const std::vector<double> values = elements_of(device, disturbed);
  for (size_t i = 0; i < reference.values.size(); ++i)
    reference.deviation = std::max(reference.deviation, std::abs(values[i] - reference.values[i]));
}

void measure(double disturbed, ReferenceNumber& reference) {
  reference.deviation = std::max(reference.deviation, std::abs(disturbed - reference.value));
}

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
  keep_run(config);
  for (int64_t i = 0; i < kDisturbedRuns; ++i) measure_run(config, RandomKey::from_seed(0).at("disturbed").at(i));
}

void ReferenceRun::keep_run(const PretrainConfig& config) {
  Trainer trainer(config, {.num_threads = threads_per_rank(1)});
  for (const Parameter* parameter : trainer.model().parameters()) names_.push_back(parameter->name());
  keep_weights(trainer);
  FamilyBatches batches(config.family);
  for (const GlobalBatch& batch : batches_) {
    const TrainStepResult result = trainer.train_step(batches.of(batch));
    ReferenceStep& step = steps_.back();
    step.loss.value = result.loss.mean();
    step.grad_norm.value = result.optimizer.grad_norm;
    require<Error>(std::isfinite(step.loss.value) && std::isfinite(step.grad_norm.value),
                   "[verify] one rank has loss {} and gradient norm {} in step {}: there is nothing to compare with. "
                   "Lower --lr or look at the data.",
                   step.loss.value, step.grad_norm.value, steps_.size());
    keep_gradients(trainer);
    keep_weights(trainer);
  }
}

double ReferenceRun::largest_grad_norm() const {
  double largest = 0;
  for (const ReferenceStep& step : steps_) largest = std::max(largest, step.grad_norm.value);
  return largest;
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

void ReferenceRun::measure_run(const PretrainConfig& config, RandomKey key) {
  Trainer trainer(config, {.num_threads = threads_per_rank(1)});
  disturb(trainer, key);
  const auto measure_weights = [&](ReferenceStep& step) {
    for (const Parameter* parameter : trainer.model().parameters())
      measure(trainer.device(), parameter->value(), step.weights.at(parameter->name()));
  };
  FamilyBatches batches(config.family);
  for (size_t i = 0; i < batches_.size(); ++i) {
    ReferenceStep& step = steps_[i];
    measure_weights(step);
    const TrainStepResult result = trainer.train_step(batches.of(batches_[i]));
    measure(result.loss.mean(), step.loss);
    measure(result.optimizer.grad_norm, step.grad_norm);
    for (Parameter* parameter : trainer.model().parameters())
      if (const auto found = step.gradients.find(parameter->name()); found != step.gradients.end())
        measure(trainer.device(), parameter->main_grad(), found->second);
  }
  measure_weights(steps_.back());
}

void ReferenceRun::disturb(Trainer& trainer, RandomKey key) const {
  for (Parameter* parameter : trainer.model().parameters())
    dispatch_floating(parameter->value().dtype(), [&]<class T>() {
      const RandomKey sides = key.at(parameter->name());
      std::vector<T> values = read_values<T>(trainer.device(), parameter->value());
      for (size_t i = 0; i < values.size(); ++i) {
        const double side = uniform(sides, static_cast<int64_t>(i)) < 0.5 ? -1 : 1;
        values[i] = static_cast<T>(static_cast<double>(values[i]) * (1 + side * eps_));
      }
      write_values<T>(trainer.device(), values, parameter->value());
    });
}

}  // namespace megatron
