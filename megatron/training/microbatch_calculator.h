// How many micro-batches a step has, as a function of the samples consumed.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace megatron {

/// From `first_sample` on, steps have `global_batch_size` samples.
struct BatchSizeStep {
  int64_t first_sample = 0;
  int64_t global_batch_size = 0;
  bool operator==(const BatchSizeStep&) const = default;
};

/// Reads "0:768 250B:1536": tokens and batch sizes, each with an optional K, M, B or T (1e3 to 1e12); entries are
/// separated by spaces or commas. Thresholds become samples by whole division with `seq_length`.
/// @throw ConfigError for a bad entry, a first threshold other than 0, thresholds that do not increase.
std::vector<BatchSizeStep> parse_step_batch_size_schedule(std::string_view schedule, int64_t seq_length);

/// Megatron's linear ramp: steps begin with `start` samples, and grow by `increment` in equal parts of the first
/// `samples` samples up to the global batch size.
struct BatchSizeRamp {
  int64_t start = 0, increment = 0, samples = 0;
};

/// The ramp, step by step, with `global_batch_size` from its end on.
/// @throw ConfigError if a number is below 1, the start is not below the global batch size, whole increments do not
/// lead from one to the other, or they are more than 1000.
std::vector<BatchSizeStep> ramp_steps(const BatchSizeRamp& ramp, int64_t global_batch_size);

struct MicrobatchCalculatorConfig {
  std::vector<BatchSizeStep> steps;  ///< one for a constant batch size
  int64_t micro_batch_size = 1;
  int64_t data_parallel_size = 1;
  bool decrease_batch_size_if_needed = false;  ///< round down to whole micro-batches on all ranks
  bool drops_partial_batch = false;  ///< a run ends before samples that do not fill a batch of the last of `steps`
};

/// One step's batch.
struct BatchSize {
  int64_t num_microbatches = 0;
  int64_t global_batch_size = 0;   ///< as asked for
  int64_t running_batch_size = 0;  ///< as run: num_microbatches * micro_batch_size * data_parallel_size
  bool operator==(const BatchSize&) const = default;
};

/// Immutable: the batch size follows from the samples consumed alone.
class MicrobatchCalculator {
 public:
  /// @throw ConfigError if a batch size is below 1 or does not divide by micro_batch_size * data_parallel_size; with
  /// decrease_batch_size_if_needed only if nothing is left of it.
  explicit MicrobatchCalculator(MicrobatchCalculatorConfig config);

  BatchSize at(int64_t consumed_samples) const;
  /// Whole steps until `train_samples` are consumed: a constant size and a ramp drop the rest, a schedule runs until
  /// all are.
  int64_t num_iterations(int64_t train_samples) const;

 private:
  MicrobatchCalculatorConfig config_;
};

}  // namespace megatron
