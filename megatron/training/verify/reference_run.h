// The results of a few training steps on one rank, with which layouts of ranks are compared.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megatron/datasets/micro_batch.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// The micro-batches of one global batch, in the order in which one rank takes them.
using GlobalBatch = std::vector<MicroBatch<int64_t>>;

/// The effect of rounding on a result is measured, as the result shows neither the terms that cancel in a sum nor the
/// layers that an error passes: kDisturbedRuns runs have initial weights that are off by eps, so that all of their
/// roundings differ. If a result is off by x there at most, a layout may be off by kRoundingDeviations * x. With
/// normally distributed errors 1 in 10^6 results has 8 small errors and then one beyond that: P(|z0| > 8 max |z1..8|) =
/// (2 / pi)^4 * 105 / 8^8.
inline constexpr double kRoundingDeviations = 8;
inline constexpr int kDisturbedRuns = 8;

/// A tensor of one rank, whole. Rows of a padded vocabulary beyond `num_elements` mean nothing.
struct ReferenceTensor {
  std::vector<double> values;
  double largest = 0;        // absolute value of an element
  double deviation = 0;      // by which an element of a disturbed run is off
  int64_t num_elements = 0;  // that count
};

struct ReferenceNumber {
  double value = 0;
  double deviation = 0;  // by which that of a disturbed run is off
};

/// Before a step: its weights. Of a step: loss, gradients (before clipping) and their norm. The last entry of a run has
/// weights alone.
struct ReferenceStep {
  std::map<std::string, ReferenceTensor> weights, gradients;
  ReferenceNumber loss, grad_norm;
};

/// Trains on the calling thread, 1 + kDisturbedRuns times, and keeps every step: 16 bytes a parameter and step.
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
  /// By how much a result of a step may be off: what was measured, and as that may be 0 for a single number, rounding
  /// of the sums that make it, whose errors add like a random walk.
  double bound(double size, double deviation) const {
    return kRoundingDeviations * (deviation + eps_ * sqrt_length_ * size);
  }
  double eps() const { return eps_; }

 private:
  void keep_run(const PretrainConfig& config);
  void keep_weights(Trainer& trainer);
  void keep_gradients(Trainer& trainer);
  /// A run whose initial weights are off by eps, up or down as `key` draws.
  void measure_run(const PretrainConfig& config, RandomKey key);
  void disturb(Trainer& trainer, RandomKey key) const;

  std::vector<GlobalBatch> batches_;
  std::vector<ReferenceStep> steps_;
  std::vector<std::string> names_;
  double eps_ = 0, sqrt_length_ = 0;
};

/// The elements of a contiguous tensor of fp64 or fp32.
std::vector<double> elements_of(Device& device, const Tensor& tensor);

}  // namespace megatron
