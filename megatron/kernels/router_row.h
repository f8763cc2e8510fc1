// The routing of one token: which experts, with which probability, and the gradient of the probabilities. Constant
// expressions are device code too, so that the CPU and CUDA share this arithmetic.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "megatron/kernels/router.h"

namespace megatron::kernels {

/// An expert (or a group of experts) in the order of choice: by descending value, and by ascending index where values
/// are equal. NaN counts as -infinity, so that there are always as many choices as experts.
template <class C>
struct RankedChoice {
  C value = std::numeric_limits<C>::infinity();
  int64_t index = -1;  // -1: before the first choice
};

/// The choice that follows `previous` among the indices [begin, end) that are allowed.
template <class C, class ValueOf, class IsAllowed>
constexpr RankedChoice<C> next_choice(RankedChoice<C> previous, int64_t begin, int64_t end, const ValueOf& value_of,
                                      const IsAllowed& is_allowed) {
  RankedChoice<C> best{-std::numeric_limits<C>::infinity(), -1};
  for (int64_t i = begin; i < end; ++i) {
    if (!is_allowed(i)) continue;
    C value = value_of(i);
    if (!(value == value)) value = -std::numeric_limits<C>::infinity();
    const bool follows = value < previous.value || (value == previous.value && i > previous.index);
    if (follows && (best.index < 0 || value > best.value)) best = {value, i};
  }
  return best;
}

struct AllowAll {
  constexpr bool operator()(int64_t) const { return true; }
};

/// Sum of the largest `num` values of [begin, end).
template <class C, class ValueOf>
constexpr C sum_of_largest(int64_t num, int64_t begin, int64_t end, const ValueOf& value_of) {
  RankedChoice<C> choice;
  C sum = 0;
  for (int64_t i = 0; i < num; ++i) {
    choice = next_choice<C>(choice, begin, end, value_of, AllowAll{});
    sum += choice.value;
  }
  return sum;
}

/// choose(expert) for the topk experts with the largest values, taken from the group_topk best groups. A group is as
/// good as the sum of its num_scored_per_group() largest values (DeepSeek-V3, arXiv:2412.19437, section 2.1.2).
template <class C, class ValueOf, class Choose>
constexpr void choose_experts(int64_t num_experts, const RouterTopkOptions& options, const ValueOf& value_of,
                              const Choose& choose) {
  const bool has_groups = options.num_groups > 0;
  const int64_t group_size = has_groups ? num_experts / options.num_groups : num_experts;
  uint64_t allowed_groups = has_groups ? 0 : ~uint64_t{0};
  if (has_groups) {
    RankedChoice<C> group;
    const auto group_value = [&](int64_t g) {
      return sum_of_largest<C>(options.num_scored_per_group(), g * group_size, (g + 1) * group_size, value_of);
    };
    for (int64_t i = 0; i < options.group_topk; ++i) {
      group = next_choice<C>(group, 0, options.num_groups, group_value, AllowAll{});
      allowed_groups |= uint64_t{1} << group.index;
    }
  }
  const auto is_allowed = [&](int64_t expert) { return (allowed_groups >> (expert / group_size) & 1) != 0; };
  RankedChoice<C> choice;
  for (int64_t i = 0; i < options.topk; ++i) {
    choice = next_choice<C>(choice, 0, num_experts, value_of, is_allowed);
    choose(choice.index);
  }
}

template <class C>
constexpr C sigmoid_of(C z) {
  return 1 / (1 + std::exp(-z));
}
/// The score of a logit for the functions that do not depend on the other logits.
template <class C>
constexpr C expert_score(RouterScore score, C z) {
  if (score == RouterScore::kSigmoid) return sigmoid_of(z);
  return std::sqrt((z > 0 ? z : 0) + std::log1p(std::exp(z > 0 ? -z : z)));
}
template <class C>
constexpr C expert_score_derivative(RouterScore score, C z, C s) {
  if (score == RouterScore::kSigmoid) return s * (1 - s);
  return s > 0 ? sigmoid_of(z) / (2 * s) : 0;
}

/// The shift and the divisor of the scores of the members of a row.
template <class C>
struct ScoreScale {
  C largest = 0, sum = 1;
};
template <class C, class IsMember>
constexpr ScoreScale<C> score_scale(RouterScore score, bool is_normalised, const C* z, int64_t num_experts,
                                    const IsMember& is_member) {
  ScoreScale<C> scale;
  if (!is_normalised) return scale;
  scale.sum = 0;
  if (score == RouterScore::kSoftmax) {
    scale.largest = -std::numeric_limits<C>::infinity();
    for (int64_t i = 0; i < num_experts; ++i)
      if (is_member(i) && z[i] > scale.largest) scale.largest = z[i];
  } else {
    scale.sum = static_cast<C>(1e-20);
  }
  for (int64_t i = 0; i < num_experts; ++i)
    if (is_member(i))
      scale.sum += score == RouterScore::kSoftmax ? std::exp(z[i] - scale.largest) : expert_score(score, z[i]);
  return scale;
}
template <class C>
constexpr C probability_of(RouterScore score, C z, const ScoreScale<C>& scale) {
  return (score == RouterScore::kSoftmax ? std::exp(z - scale.largest) : expert_score(score, z)) / scale.sum;
}

/// store(i, gradient of logit i) from the gradients of the members' probabilities; 0 for the others.
template <class C, class IsMember, class GradientOf, class Store>
constexpr void differentiate_scores(RouterScore score, bool is_normalised, const C* z, int64_t num_experts,
                                    const IsMember& is_member, const GradientOf& gradient_of, const Store& store) {
  const ScoreScale<C> scale = score_scale(score, is_normalised, z, num_experts, is_member);
  C dot = 0;
  for (int64_t i = 0; is_normalised && i < num_experts; ++i)
    if (is_member(i)) dot += probability_of(score, z[i], scale) * gradient_of(i);
  for (int64_t i = 0; i < num_experts; ++i) {
    if (!is_member(i)) {
      store(i, C(0));
    } else if (score == RouterScore::kSoftmax) {
      store(i, probability_of(score, z[i], scale) * (gradient_of(i) - dot));
    } else {
      const C derivative = expert_score_derivative(score, z[i], expert_score(score, z[i]));
      store(i, derivative * (gradient_of(i) - dot) / scale.sum);
    }
  }
}

/// router_topk of one token. @param selection, expert_bias  null if not given.
template <class C>
constexpr void route_token(const C* z, const C* selection, const float* expert_bias, int64_t num_experts,
                           const RouterTopkOptions& options, C* probs, uint8_t* map) {
  const bool takes_probabilities = options.score == RouterScore::kSoftmax && options.pre_softmax;
  const ScoreScale<C> all = score_scale(options.score, takes_probabilities, z, num_experts, AllowAll{});
  for (int64_t i = 0; i < num_experts; ++i) {  // the values to choose by; probs is their place until the end
    map[i] = 0;
    probs[i] = selection                                ? selection[i]
               : takes_probabilities                    ? probability_of(options.score, z[i], all)
               : options.score == RouterScore::kSoftmax ? z[i]
                                                        : expert_score(options.score, z[i]);
    if (expert_bias) probs[i] += static_cast<C>(expert_bias[i]);
  }
  choose_experts<C>(
      num_experts, options, [probs](int64_t i) { return probs[i]; }, [map](int64_t i) { map[i] = 1; });
  const auto is_chosen = [map](int64_t i) { return map[i] != 0; };
  const ScoreScale<C> scale =
      takes_probabilities ? all : score_scale(options.score, options.is_normalised(), z, num_experts, is_chosen);
  const C factor = static_cast<C>(options.scaling_factor);
  for (int64_t i = 0; i < num_experts; ++i)
    probs[i] = is_chosen(i) ? factor * probability_of(options.score, z[i], scale) : C(0);
}

/// router_topk_backward of one token.
template <class C>
constexpr void differentiate_routing(const C* z, const uint8_t* map, const C* dprobs, int64_t num_experts,
                                     const RouterTopkOptions& options, C* dz) {
  const bool are_all_members = options.score == RouterScore::kSoftmax && options.pre_softmax;
  const C factor = static_cast<C>(options.scaling_factor);
  differentiate_scores(
      options.score, options.is_normalised(), z, num_experts, [&](int64_t i) { return are_all_members || map[i] != 0; },
      [&](int64_t i) { return map[i] != 0 ? factor * dprobs[i] : C(0); }, [dz](int64_t i, C value) { dz[i] = value; });
}

/// log(sum(exp(z))).
template <class C>
constexpr C log_sum_exp(const C* z, int64_t num_experts) {
  const ScoreScale<C> scale = score_scale(RouterScore::kSoftmax, true, z, num_experts, AllowAll{});
  return scale.largest + std::log(scale.sum);
}

/// Returns the divisor that makes shares of counts; if nothing is counted all shares are 0.
constexpr double sum_of_counts(const float* counts, int64_t num_experts) {
  double sum = 0;
  for (int64_t i = 0; i < num_experts; ++i) sum += static_cast<double>(counts[i]);
  return sum > 0 ? sum : 1;
}
/// Sum over the experts of probability times share of the counted tokens.
template <class C>
constexpr double balance_loss_of(RouterScore score, const C* z, const float* counts, int64_t num_experts) {
  const ScoreScale<C> scale = score_scale(score, true, z, num_experts, AllowAll{});
  double sum = 0;
  for (int64_t i = 0; i < num_experts; ++i)
    sum += static_cast<double>(probability_of(score, z[i], scale)) * static_cast<double>(counts[i]);
  return sum / sum_of_counts(counts, num_experts);
}
/// dz = dz_out + factor * its gradient; dz may be dz_out.
template <class C>
constexpr void differentiate_balance_loss(RouterScore score, const C* z, const float* counts, const C* dz_out,
                                          int64_t num_experts, double factor, C* dz) {
  const C per_count = static_cast<C>(factor / sum_of_counts(counts, num_experts));
  differentiate_scores(
      score, true, z, num_experts, AllowAll{}, [&](int64_t i) { return per_count * static_cast<C>(counts[i]); },
      [&](int64_t i, C gradient) { dz[i] = dz_out[i] + gradient; });
}

/// dz = dz_out + factor * gradient of log_sum_exp(z)^2; dz may be dz_out.
template <class C>
constexpr void differentiate_z_loss(const C* z, const C* dz_out, int64_t num_experts, C factor, C* dz) {
  const ScoreScale<C> scale = score_scale(RouterScore::kSoftmax, true, z, num_experts, AllowAll{});
  const C gradient = 2 * factor * (scale.largest + std::log(scale.sum));
  for (int64_t i = 0; i < num_experts; ++i)
    dz[i] = dz_out[i] + gradient * probability_of(RouterScore::kSoftmax, z[i], scale);
}

/// Sinkhorn's iteration ends when the column factors change by no more than this in the mean.
inline constexpr double kSinkhornTolerance = 1e-4, kSinkhornEpsilon = 1e-8;
template <class C>
constexpr double sinkhorn_row_factor(const C* cost, const double* column_factors, int64_t num_experts,
                                     int64_t num_tokens) {
  double sum = 0;
  for (int64_t i = 0; i < num_experts; ++i) sum += static_cast<double>(cost[i]) * column_factors[i];
  return 1 / (static_cast<double>(num_tokens) * (sum + kSinkhornEpsilon));
}
/// @param cost  of the first token; the next one's lies num_experts further.
template <class C>
constexpr double sinkhorn_column_factor(const C* cost, const double* row_factors, int64_t num_experts,
                                        int64_t num_tokens) {
  double sum = 0;
  for (int64_t t = 0; t < num_tokens; ++t) sum += static_cast<double>(cost[t * num_experts]) * row_factors[t];
  return 1 / (static_cast<double>(num_experts) * (sum + kSinkhornEpsilon));
}

/// The (topk + 1)-th largest value of a token: what an expert must beat to get it.
template <class C>
constexpr C admission_threshold(const C* values, int64_t num_experts, int64_t topk) {
  RankedChoice<C> choice;
  for (int64_t i = 0; i <= topk; ++i)
    choice = next_choice<C>(
        choice, 0, num_experts, [values](int64_t expert) { return values[expert]; }, AllowAll{});
  return choice.value;
}
/// The new beta of an expert before its mean is taken off.
constexpr double moved_beta(const float* sums, const float* beta, int64_t expert, int64_t num_experts, double ema) {
  const double count = sums[num_experts] > 0 ? static_cast<double>(sums[num_experts]) : 1;
  return ema * static_cast<double>(beta[expert]) + (1 - ema) * static_cast<double>(sums[expert]) / count;
}
constexpr double mean_moved_beta(const float* sums, const float* beta, int64_t num_experts, double ema) {
  double sum = 0;
  for (int64_t i = 0; i < num_experts; ++i) sum += moved_beta(sums, beta, i, num_experts, ema);
  return sum / static_cast<double>(num_experts);
}

constexpr double mean_count(const float* counts, int64_t num_experts) {
  return sum_of_counts(counts, num_experts) / static_cast<double>(num_experts);
}
/// Returns the term that update_expert_bias adds.
constexpr float bias_step(float count, double mean, double rate) {
  const auto tokens = static_cast<double>(count);
  return static_cast<float>(tokens < mean ? rate : tokens > mean ? -rate : 0);
}

}  // namespace megatron::kernels
