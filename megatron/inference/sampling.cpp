#include "megatron/inference/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {

int64_t sample_token(std::span<const double> logits, const SamplingOptions& options, RandomKey key, int64_t position) {
  require<ConfigError>(
      options.temperature >= 0 && options.top_k >= 0 && options.top_p > 0 && options.top_p <= 1,
      "[sampling] temperature {} must be 0 or more, top-k {} 0 or more, top-p {} above 0 and at most 1.",
      options.temperature, options.top_k, options.top_p);
  require<ConfigError>(std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); }),
                       "[sampling] the model's logits are not finite: its weights are damaged or training diverged.");
  const auto by_logit = [&](size_t a, size_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); };
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (options.temperature == 0) return static_cast<int64_t>(*std::min_element(order.begin(), order.end(), by_logit));
  const size_t num_kept =
      options.top_k == 0 ? order.size() : std::min(order.size(), static_cast<size_t>(options.top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(num_kept), order.end(), by_logit);
  order.resize(num_kept);

  std::vector<double> cumulative;
  cumulative.reserve(order.size());
  double sum = 0;
  for (size_t id : order) cumulative.push_back(sum += std::exp((logits[id] - logits[order[0]]) / options.temperature));
  // The nucleus: up to the first token with which the kept probability reaches top_p.
  const auto last = std::lower_bound(cumulative.begin(), cumulative.end(), options.top_p * sum);
  const double mass = last == cumulative.end() ? sum : *last;
  const auto drawn = std::upper_bound(cumulative.begin(), cumulative.end(), uniform(key, position) * mass);
  const auto index = std::min<std::ptrdiff_t>(drawn - cumulative.begin(), std::ssize(cumulative) - 1);
  return static_cast<int64_t>(order[static_cast<size_t>(index)]);
}

}  // namespace megatron
