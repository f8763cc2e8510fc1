#include "megatron/inference/log_probs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace megatron {

ScoredToken score_token(std::span<const double> logits, TokenId id, int64_t num_top) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  const double log_sum = largest + std::log(sum);
  const auto log_prob = [&](TokenId token) { return logits[static_cast<size_t>(token)] - log_sum; };
  ScoredToken scored{.id = id, .log_prob = log_prob(id)};
  std::vector<TokenId> order(num_top == 0 ? 0 : logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + std::min<int64_t>(num_top, std::ssize(order));
  std::partial_sort(order.begin(), end, order.end(), [&](TokenId a, TokenId b) {
    const double x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  for (auto token = order.begin(); token != end; ++token) scored.top.push_back({*token, log_prob(*token)});
  return scored;
}

}  // namespace megatron
