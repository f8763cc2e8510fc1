// One token out of the logits of a position.
#pragma once

#include <cstdint>
#include <span>

#include "megatron/core/random.h"

namespace megatron {

/// Logits are divided by `temperature`; the `top_k` largest remain (0: all); of these the smallest set whose
/// probability reaches `top_p` (nucleus sampling, Holtzman et al. 2019, arXiv:1904.09751); one of them is drawn.
struct SamplingOptions {
  double temperature = 1.0;  // 0: the largest logit, always
  int64_t top_k = 0;
  double top_p = 1.0;
};

/// The same key and position give the same token. Ties of logits go to the smaller id.
/// @param logits  of the true vocabulary. @throw ConfigError for options out of range, or logits that are not finite.
int64_t sample_token(std::span<const double> logits, const SamplingOptions& options, RandomKey key, int64_t position);

}  // namespace megatron
