#include "megatron/datasets/blend_index.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace megatron {
namespace {

// Lengths at which NumPy changes its way of summing (numpy/_core/src/umath/loops_utils.h.src).
constexpr size_t kUnrolled = 8;
constexpr size_t kPairwiseBlock = 128;

/// Number of samples so far, as the divisor-free error term uses it: the first two steps both count as one.
double samples_so_far(int64_t step) { return static_cast<double>(std::max<int64_t>(step, 1)); }

BlendIndex empty_index(int64_t size) {
  return {NpyArray(NpyDtype::kInt16, {size}), NpyArray(NpyDtype::kInt64, {size})};
}

}  // namespace

double numpy_sum(std::span<const double> values) {
  const size_t n = values.size();
  if (n < kUnrolled) return std::accumulate(values.begin(), values.end(), 0.0);
  if (n > kPairwiseBlock) {
    const size_t half = n / 2 - n / 2 % kUnrolled;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  std::array<double, kUnrolled> r;
  std::copy_n(values.begin(), kUnrolled, r.begin());
  size_t i = kUnrolled;
  for (; i + kUnrolled <= n; i += kUnrolled) {
    for (size_t j = 0; j < kUnrolled; ++j) r[j] += values[i + j];
  }
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < n; ++i) sum += values[i];
  return sum;
}

std::vector<double> normalize_weights(std::span<const double> weights) {
  const double sum = numpy_sum(weights);
  std::vector<double> normalized(weights.begin(), weights.end());
  for (double& weight : normalized) weight /= sum;
  return normalized;
}

int64_t blend_member_size(double weight, int64_t size, double surplus) {
  return static_cast<int64_t>(std::ceil(std::ceil(static_cast<double>(size) * weight) * (1 + surplus)));
}

BlendIndex build_blending_index(std::span<const double> weights, int64_t size) {
  BlendIndex index = empty_index(size);
  const std::span<int16_t> dataset = index.dataset_index.values<int16_t>();
  const std::span<int64_t> sample = index.dataset_sample_index.values<int64_t>();
  std::vector<int64_t> taken(weights.size(), 0);
  for (int64_t i = 0; i < size; ++i) {
    const double so_far = samples_so_far(i);
    size_t chosen = 0;
    double largest_lag = weights[0] * so_far - static_cast<double>(taken[0]);
    for (size_t j = 1; j < weights.size(); ++j) {
      const double lag = weights[j] * so_far - static_cast<double>(taken[j]);
      if (lag > largest_lag) largest_lag = lag, chosen = j;
    }
    dataset[static_cast<size_t>(i)] = static_cast<int16_t>(chosen);
    sample[static_cast<size_t>(i)] = taken[chosen]++;
  }
  return index;
}

BlendIndex build_exhaustive_blending_index(std::span<const int64_t> counts) {
  const int64_t size = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  BlendIndex index = empty_index(size);
  const std::span<int16_t> dataset = index.dataset_index.values<int16_t>();
  const std::span<int64_t> sample = index.dataset_sample_index.values<int64_t>();
  std::vector<int64_t> taken(counts.size(), 0);
  for (int64_t i = 0; i < size; ++i) {
    const double so_far = samples_so_far(i);
    size_t chosen = 0;
    double largest_lag = std::numeric_limits<double>::lowest();
    for (size_t j = 0; j < counts.size(); ++j) {
      if (taken[j] == counts[j]) continue;
      const double fraction = static_cast<double>(counts[j]) / static_cast<double>(size);
      const double lag = fraction * so_far - static_cast<double>(taken[j]);
      if (lag > largest_lag) largest_lag = lag, chosen = j;
    }
    dataset[static_cast<size_t>(i)] = static_cast<int16_t>(chosen);
    sample[static_cast<size_t>(i)] = taken[chosen]++;
  }
  return index;
}

}  // namespace megatron
