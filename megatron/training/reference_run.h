// What one rank makes of a model in a few training steps, kept to compare layouts of ranks with.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megatron/datasets/micro_batch.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// The micro-batches of one global batch, in the order in which one rank takes them.
using GlobalBatch = std::vector<MicroBatch<int64_t>>;

/// Rounding errors of k terms add like a random walk: a result of size x is off by no more than
/// kRoundingDeviations * eps * sqrt(k) * x. eps * sqrt(k) is the deviation, the largest of 10^6 normally distributed
/// values lies within 5 of them, and 8 leaves room for errors that share an operand.
inline constexpr double kRoundingDeviations = 8;

/// A tensor of one rank, whole. Rows of a padded vocabulary beyond `num_elements` mean nothing.
struct ReferenceTensor {
  std::vector<double> values;
  double largest = 0;        // absolute value of an element
  int64_t num_elements = 0;  // that count
};

/// Before a step: its weights. Of a step: loss, gradients (before clipping) and their norm. The last entry of a run has
/// weights alone.
struct ReferenceStep {
  std::map<std::string, ReferenceTensor> weights, gradients;
  /// By how much a weight may have departed until now if all gradients had departed by 1 part of the bound of rounding:
  /// multiply by the eps that they were computed with.
  std::map<std::string, std::vector<float>> weight_sensitivity;
  double loss = 0, grad_norm = 0;
};

/// Trains on the calling thread and keeps every step: 20 bytes a parameter and step.
class ReferenceRun {
 public:
  /// @param config  resolved, of one rank, its vocabulary included; fp64 or fp32.
  /// @throw NotSupported for other precisions: their rounding hides faults. Error if a loss is not finite.
  ReferenceRun(const PretrainConfig& config, std::vector<GlobalBatch> batches);

  int64_t num_steps() const { return static_cast<int64_t>(batches_.size()); }
  const GlobalBatch& batch(int64_t step) const { return batches_.at(static_cast<size_t>(step)); }
  /// Step 0 to num_steps(), of which the last is the end.
  const ReferenceStep& step(int64_t step) const { return steps_.at(static_cast<size_t>(step)); }
  double largest_grad_norm() const;
  /// Names of the parameters in the order of registration: forward's.
  const std::vector<std::string>& names() const { return names_; }
  /// Relative bound of what a step computes from its weights, if they were rounded with `eps`.
  double relative_bound(double eps) const { return kRoundingDeviations * eps * sqrt_length_; }
  double eps() const { return eps_; }

 private:
  void keep_weights(Trainer& trainer);
  void keep_gradients(Trainer& trainer);
  void keep_sensitivity(Trainer& trainer, double learning_rate);

  std::vector<GlobalBatch> batches_;
  std::vector<ReferenceStep> steps_;
  std::vector<std::string> names_;
  double eps_ = 0, sqrt_length_ = 0;
};

/// The elements of a contiguous tensor of fp64 or fp32.
std::vector<double> elements_of(Device& device, const Tensor& tensor);

}  // namespace megatron
