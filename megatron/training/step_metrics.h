// Metrics of a training step, by name: accumulated on the device, and read by the host at the end of the step.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "megatron/core/readback.h"
#include "megatron/models/metric_spec.h"

namespace megatron {

/// Values of a step on the host.
struct StepMetric {
  std::string name;
  std::vector<double> values;
};
/// The only value of the metric of this name. @throw InternalError if there is none.
double value_of(const std::vector<StepMetric>& metrics, std::string_view name);

/// Accumulators of one step. Metrics that are reduced alike lie in one block, so that one collective a group reduces
/// all of them; blocks are taken in the same order in every step, so that their addresses do not change. All ranks give
/// the same specs. Example:
///   StepMetrics metrics(ctx, {{.name = "lm loss", .groups = {pp, dp_cp}}});
///   // kernels add to metrics.accumulator("lm loss")
///   metrics.reduce();
///   metrics.add_to(readback);
///   readback.wait(ctx);
///   value_of(metrics.values(), "lm loss");
class StepMetrics {
 public:
  /// @throw InternalError for two metrics of one name, or another dtype than fp64 and int64.
  StepMetrics(const Context& ctx, const std::vector<MetricSpec>& specs);

  /// In device memory, [size].
  Tensor accumulator(std::string_view name) const;
  /// Reduces the blocks that reduce() and reduce_block_of() have not reduced yet.
  void reduce();
  /// Only the metrics that are reduced like this one.
  void reduce_block_of(std::string_view name);
  /// Does not wait. This object must stay where it is until the readback has.
  void add_to(Readback& readback);
  /// After the readback's wait, in the order of the specs.
  std::vector<StepMetric> values() const;

 private:
  struct Block {
    MetricSpec spec;  // of its first metric; `size` counts all elements
    std::string site;
    Tensor tensor;
    bool is_reduced = false;
    std::vector<double> reals;  // one of these two, by dtype
    std::vector<int64_t> integers;
  };
  struct Entry {
    std::string name;
    size_t block;
    int64_t first, size;  // elements of the block
  };
  const Entry& entry(std::string_view name) const;
  static void reduce(Block& block);

  std::vector<Block> blocks_;
  std::vector<Entry> entries_;
};

}  // namespace megatron
