// Frequencies of rotary position embedding and their scalings to longer sequences. Host only.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron::kernels {

enum class RopeScaling { kNone, kLlama3, kYarn, kDynamic, kLong };

/// Llama 3.1's scaling: wavelengths above original_length / low_frequency_factor are stretched by `factor`, those below
/// original_length / high_frequency_factor kept, those between interpolated.
struct Llama3Scaling {
  double factor = 8, low_frequency_factor = 1, high_frequency_factor = 4;
  int64_t original_length = 8192;
};

/// YaRN. Source: Peng et al. 2023 (arXiv:2309.00071), section 3.
struct YarnScaling {
  double factor = 1, beta_fast = 32, beta_slow = 1;
  int64_t original_length = 4096;
  double mscale = 1, mscale_all_dim = 0;
  bool round_range = true;  // round the interpolation range to whole dimensions
};

/// Dynamic NTK scaling: the base grows with the length of the sequences, so that the slowest frequency is divided by
/// `factor` * length / original_length - (factor - 1). Up to the original length nothing changes.
/// Source: transformers, modeling_rope_utils.py, _compute_dynamic_ntk_parameters.
struct DynamicScaling {
  double factor = 1;
  int64_t original_length = 0, length = 0;
};

/// LongRoPE: every frequency is divided by a factor of its own. Source: Ding et al. 2024 (arXiv:2402.13753).
struct LongScaling {
  std::vector<double> factors;  // [rope_rotated_size / 2]
  double magnitude = 1;         // of cos and sin
};

struct RopeSettings {
  int64_t head_size = 0;
  double base = 10000;
  double percent = 1;               // rotated fraction of the head size
  double interpolation_factor = 1;  // divides positions
  RopeScaling scaling = RopeScaling::kNone;
  Llama3Scaling llama3;
  YarnScaling yarn;
  DynamicScaling dynamic;
  LongScaling longrope;
};

/// Number of rotated elements of a head: head_size * percent, truncated to a whole number. For an odd number the last
/// pair takes one element more, as in Megatron Core, whose frequencies are base^(-2i / odd number).
/// @throw ConfigError for a head that is too small, an odd number with YaRN, or a wrong number of LongRoPE's factors.
int64_t rope_rotated_size(const RopeSettings& settings);
/// [rope_rotated_size / 2], radians per position.
std::vector<double> rope_frequencies(const RopeSettings& settings);
/// Factor of cos and sin: 1 except for YaRN and LongRoPE.
double rope_magnitude(const RopeSettings& settings);
/// YaRN's growth of attention with the factor: 0.1 mscale ln(factor) + 1, and 1 for factor <= 1. Its square enters the
/// softmax scale of multi-latent attention.
double yarn_mscale(double factor, double mscale);

}  // namespace megatron::kernels
