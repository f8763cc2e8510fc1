// The number of samples that a run needs of each split.
#pragma once

#include <cstdint>
#include <optional>

#include "megatron/datasets/split.h"

namespace megatron {

/// The flags that determine the number of samples; names are Megatron's.
struct RunLength {
  std::optional<int64_t> train_samples;  // instead of train_iters
  int64_t train_iters = 0;
  int64_t global_batch_size = 0;
  int64_t eval_iters = 100;
  int64_t eval_interval = 0;
  std::optional<int64_t> eval_global_batch_size;  // nullopt: global_batch_size
  std::optional<int64_t> start_eval_at_iter;
  bool skip_train = false;
  bool full_validation = false;
};

/// Samples of training, of all validations together, and of the test at the end. Full validation takes its data once.
/// With train_samples, train_iters must hold the number of iterations that they make.
/// @throw ConfigError if validations are requested, but eval_interval is not positive.
SampleCounts count_samples(const RunLength& run);

}  // namespace megatron
