#include "megatron/datasets/blend_index.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "megatron/datasets/lag_tournament.h"

namespace megatron {
namespace {

// Lengths at which NumPy changes its way of summing (numpy/_core/src/umath/loops_utils.h.src).
constexpr size_t kUnrolled = 8;
constexpr size_t kPairwiseBlock = 128;

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
  LagTournament tournament(weights, size);
  for (int64_t i = 0; i < size; ++i) {
    const size_t chosen = tournament.leader(i);
    dataset[static_cast<size_t>(i)] = static_cast<int16_t>(chosen);
    sample[static_cast<size_t>(i)] = tournament.take(chosen, i);
  }
  return index;
}

BlendIndex build_exhaustive_blending_index(std::span<const int64_t> counts) {
  const int64_t size = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  BlendIndex index = empty_index(size);
  const std::span<int16_t> dataset = index.dataset_index.values<int16_t>();
  const std::span<int64_t> sample = index.dataset_sample_index.values<int64_t>();
  std::vector<double> fractions;
  for (const int64_t count : counts) fractions.push_back(static_cast<double>(count) / static_cast<double>(size));
  LagTournament tournament(fractions, size);
  for (size_t j = 0; j < counts.size(); ++j)
    if (counts[j] == 0) tournament.remove(j, -1);
  for (int64_t i = 0; i < size; ++i) {
    const size_t chosen = tournament.leader(i);
    const int64_t taken = tournament.take(chosen, i);
    if (taken + 1 == counts[chosen]) tournament.remove(chosen, i);
    dataset[static_cast<size_t>(i)] = static_cast<int16_t>(chosen);
    sample[static_cast<size_t>(i)] = taken;
  }
  return index;
}

}  // namespace megatron
