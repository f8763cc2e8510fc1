// Means of the losses over a log interval.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "megatron/telemetry/training_log.h"

namespace megatron {

/// Sums the losses of the iterations of a log interval. Skipped iterations (overflow of the loss scale) do not enter
/// the means; those among them whose losses are NaN or infinite are counted. Megatron prints after the first iteration
/// without reset(), so that the first full interval covers it too.
class LossAverages {
 public:
  /// One iteration whose optimizer step was taken. Names keep the order of their first appearance.
  void add(std::span<const NamedValue> losses);

  /// One iteration whose optimizer step was skipped.
  void add_skipped(std::span<const NamedValue> losses);

  /// Means since the last reset(); 0 where no iteration was taken.
  std::vector<NamedValue> means() const;

  /// The iteration that was added last was computed twice: its first run lacked rows.
  void count_repetition() { ++repeated_; }

  std::int64_t num_iterations() const { return advanced_ + skipped_; }
  std::int64_t skipped_iterations() const { return skipped_; }
  std::int64_t nan_iterations() const { return nan_; }
  std::int64_t repeated_iterations() const { return repeated_; }

  /// Starts the next interval. Names stay known.
  void reset();

 private:
  std::vector<NamedValue> sums_;
  std::int64_t advanced_ = 0;
  std::int64_t skipped_ = 0;
  std::int64_t nan_ = 0;
  std::int64_t repeated_ = 0;
};

}  // namespace megatron
