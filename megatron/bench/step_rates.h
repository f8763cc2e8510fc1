// Rates from the time of a training step: per rank, and as fractions of the machine's limits.
#pragma once

#include <cstdint>
#include <optional>

#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// A step of all ranks.
struct StepWork {
  double tokens = 0;
  /// Megatron's count: 6 operations per weight of a matrix and token, attention over the causal half; what
  /// --log-throughput prints. @see theoretical_flops
  double megatron_operations = 0;
  /// "6 N + attention": 6 per parameter, embeddings and norms among them, and token, attention over the whole square,
  /// 12 layers n d s per token. Source: Chowdhery et al. 2022 (arXiv:2204.02311), appendix B.
  double six_n_operations = 0;
  int64_t num_ranks = 1;
};
/// @param config  resolved, its vocabulary included
StepWork step_work_of(const PretrainConfig& config);

/// Rates of each rank.
struct StepRates {
  double tokens_per_second = 0;
  double megatron_flops = 0, six_n_flops = 0;  // a second
};
StepRates rates_of(const StepWork& work, double seconds);

}  // namespace megatron
