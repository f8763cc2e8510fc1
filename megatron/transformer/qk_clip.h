// QK-clip: scales the weights of queries and keys so that attention's logits stay below a threshold.
// Source: Kimi K2 (arXiv:2507.20534), algorithm 1. Megatron Core: core/optimizer/qk_clip.py.
#pragma once

#include <cmath>
#include <string_view>

namespace megatron {

/// A metric of a training step, [layers of the decoder * heads] float64: the largest logit of each head, or 0.
inline constexpr std::string_view kMaxAttentionLogits = "max attention logits";

struct QkClip {
  double threshold = 100;
  double alpha = 0.5;  ///< the share of queries in the factor of logits, as a power

  /// The factor of the logits of a head: min(threshold / max_logit, 1), and 1 where the logit is not finite.
  double logit_factor(double max_logit) const {
    return std::isfinite(max_logit) && max_logit > threshold ? threshold / max_logit : 1;
  }
  double query_factor(double logit_factor) const { return std::pow(logit_factor, alpha); }
  double key_factor(double logit_factor) const { return std::pow(logit_factor, 1 - alpha); }
};

}  // namespace megatron
