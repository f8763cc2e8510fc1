// The order in which a blend draws from its datasets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "megatron/datasets/npy_array.h"

namespace megatron {

/// The pairwise sum of numpy.sum, so that weights are equal bit for bit.
double numpy_sum(std::span<const double> values);
/// Each value over their numpy_sum.
std::vector<double> normalize_weights(std::span<const double> weights);

/// Samples that a dataset must offer to a blend of `size` samples: ceil(ceil(size * weight) * (1 + surplus)).
int64_t blend_member_size(double weight, int64_t size, double surplus);

/// For each sample of a blend, its dataset and its number there.
struct BlendIndex {
  NpyArray dataset_index;         // [size], int16
  NpyArray dataset_sample_index;  // [size], int64
};

/// Takes at each step the dataset that lags most behind its weight; the lowest number wins ties.
/// Source: Megatron Core, helpers.cpp, build_blending_indices. @param weights sum to 1.
BlendIndex build_blending_index(std::span<const double> weights, int64_t size);

/// The same rule until each dataset has given exactly `counts` samples.
/// Source: Megatron Core, helpers.cpp, build_exhaustive_blending_indices.
BlendIndex build_exhaustive_blending_index(std::span<const int64_t> counts);

}  // namespace megatron
