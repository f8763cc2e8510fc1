// The router of a mixture of experts: which experts a token goes to, with which probability, and the losses that
// balance them. t tokens, e experts. Logits and probabilities are float32 or float64, contiguous, and of one dtype in a
// call; routing maps are uint8 [t, e] of 0 and 1. Megatron Core: core/transformer/moe/{router,moe_utils}.py.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/random.h"
#include "megatron/core/step_state.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// kSoftmax: exp(z_i) / sum of exp(z). kSigmoid: 1 / (1 + exp(-z)). kSqrtSoftplus: sqrt(log(1 + exp(z))).
enum class RouterScore { kSoftmax, kSigmoid, kSqrtSoftplus };

struct RouterTopkOptions {
  int64_t topk = 2;
  RouterScore score = RouterScore::kSoftmax;
  bool pre_softmax = false;                // softmax over all experts, not over the chosen ones
  int64_t num_groups = 0, group_topk = 0;  // the experts come from the group_topk best groups; 0: no groups
  int64_t group_score_topk = 0;  // a group is as good as the sum of so many; 0: topk / group_topk, rounded down
  double scaling_factor = 1;     // of the probabilities

  static constexpr int64_t kMostGroups = 64;
  /// Largest values of a group that are its score.
  constexpr int64_t num_scored_per_group() const {  // with groups
    return group_score_topk > 0 ? group_score_topk : topk / group_topk;
  }
  /// Says whether the probabilities of a token sum to 1 (before the scaling factor; over all experts with pre_softmax).
  constexpr bool is_normalised() const { return score == RouterScore::kSoftmax || topk > 1; }
};

/// map marks the topk experts of each token with the largest selection value, ties going to the lower number; probs
/// has their probabilities and is 0 elsewhere. The selection value is that of `selection` if given, else the score
/// (the logit for softmax over the chosen), plus expert_bias.
struct RouterTopkForwardArgs {
  ConstView logits;       // [t, e]
  ConstView selection;    // [t, e]; optional
  ConstView expert_bias;  // [e] float32; optional
  View probs, map;        // [t, e]
  RouterTopkOptions options;
};
void router_topk_forward(const CpuStream& stream, const RouterTopkForwardArgs& args);
void router_topk_forward(const CudaStream& stream, const RouterTopkForwardArgs& args);

/// dlogits from the gradients of the probabilities that the map marks; the others' are not read.
struct RouterTopkBackwardArgs {
  ConstView logits, map, dprobs;  // [t, e]
  View dlogits;                   // [t, e]; not dprobs
  RouterTopkOptions options;
};
void router_topk_backward(const CpuStream& stream, const RouterTopkBackwardArgs& args);
void router_topk_backward(const CudaStream& stream, const RouterTopkBackwardArgs& args);

/// map marks the topk largest elements of each row.
struct TopkMapArgs {
  ConstView x;  // [t, e]
  View map;     // [t, e]
  int64_t topk = 1;
};
void topk_map(const CpuStream& stream, const TopkMapArgs& args);
void topk_map(const CudaStream& stream, const TopkMapArgs& args);

/// counts[j, i] (+)= number of tokens t with t mod n = j that go to expert i. Tokens are [s, n] taken together, so
/// that n = b gives counts of each sequence, and n = 1 counts of all.
struct CountTokensArgs {
  ConstView map;  // [t, e]
  View counts;    // [n, e] float32
  bool accumulate = false;
};
void count_tokens(const CpuStream& stream, const CountTokensArgs& args);
void count_tokens(const CudaStream& stream, const CountTokensArgs& args);

/// loss = factor * sum over t and i of p[t, i] * counts[t mod n, i] / (sum over i of counts[t mod n, i]), where p are
/// the scores of all experts divided by their sum. Switch Transformers (arXiv:2101.03961), eq. 4: the sum of the counts
/// is topk * tokens, and factor = coefficient * e / t.
struct BalanceLossForwardArgs {
  ConstView logits;  // [t, e]
  ConstView counts;  // [n, e] float32
  View row_losses;   // [t] float64, a workspace
  View loss;         // [1] float64
  RouterScore score = RouterScore::kSoftmax;
  double factor = 1;
};
void balance_loss_forward(const CpuStream& stream, const BalanceLossForwardArgs& args);
void balance_loss_forward(const CudaStream& stream, const BalanceLossForwardArgs& args);

/// dlogits = dlogits_out + scale * dloss/dlogits.
struct BalanceLossBackwardArgs {
  ConstView logits, counts, dlogits_out;
  ConstView scale;  // [1] float64; undefined: 1
  View dlogits;     // may be dlogits_out
  RouterScore score = RouterScore::kSoftmax;
  double factor = 1;
};
void balance_loss_backward(const CpuStream& stream, const BalanceLossBackwardArgs& args);
void balance_loss_backward(const CudaStream& stream, const BalanceLossBackwardArgs& args);

/// loss = factor * sum over t of log(sum(exp(logits[t])))^2. ST-MoE (arXiv:2202.08906), eq. 5: factor = coefficient /
/// tokens.
struct ZLossForwardArgs {
  ConstView logits;  // [t, e]
  View row_losses;   // [t] float64, a workspace
  View loss;         // [1] float64
  double factor = 1;
};
void z_loss_forward(const CpuStream& stream, const ZLossForwardArgs& args);
void z_loss_forward(const CudaStream& stream, const ZLossForwardArgs& args);

/// dlogits = dlogits_out + scale * dloss/dlogits.
struct ZLossBackwardArgs {
  ConstView logits, dlogits_out;
  ConstView scale;  // [1] float64; undefined: 1
  View dlogits;     // may be dlogits_out
  double factor = 1;
};
void z_loss_backward(const CpuStream& stream, const ZLossBackwardArgs& args);
void z_loss_backward(const CudaStream& stream, const ZLossBackwardArgs& args);

/// values = Sinkhorn's normalisation of exp(logits): rows and columns are scaled in turn until all rows sum to 1 / t
/// and all columns to 1 / e, that is until the mean change of the column factors is at most 1e-4. For RouterTopk's
/// selection.
struct SinkhornArgs {
  ConstView logits;  // [t, e]
  View values;       // [t, e]
  View workspace;    // uint8 [sinkhorn_workspace_bytes]
};
void sinkhorn(const CpuStream& stream, const SinkhornArgs& args);
void sinkhorn(const CudaStream& stream, const SinkhornArgs& args);
constexpr int64_t sinkhorn_workspace_bytes(int64_t t, int64_t e) { return 8 * (t + e); }

/// expert_bias += rate * sign(mean(counts) - counts): experts with too few tokens become more attractive. DeepSeek-V3
/// (arXiv:2408.15664).
struct ExpertBiasUpdateArgs {
  ConstView counts;  // [e] float32
  View expert_bias;  // [e] float32
  double rate = 1e-3;
};
void update_expert_bias(const CpuStream& stream, const ExpertBiasUpdateArgs& args);
void update_expert_bias(const CudaStream& stream, const ExpertBiasUpdateArgs& args);

/// Quantile balancing (Megatron Core's dual coordinate descent): values = logits - beta, by which experts are chosen.
/// If `sums` is given, sums[i] += the beta that would give expert i its t topk / e tokens, and sums[e] += 1: the
/// (t topk / e + 1)-th largest of logits[t, i] - (the (topk + 1)-th largest of values[t]) over the tokens t.
struct QuantileBalanceArgs {
  ConstView logits;  // [t, e]
  ConstView beta;    // [e] float32
  View values;       // [t, e]
  View sums;         // [e + 1] float32; optional
  View workspace;    // uint8 [quantile_workspace_bytes]
  int64_t topk = 1;  // below e
};
void quantile_balance(const CpuStream& stream, const QuantileBalanceArgs& args);
void quantile_balance(const CudaStream& stream, const QuantileBalanceArgs& args);
constexpr int64_t quantile_workspace_bytes(int64_t t, int64_t e) { return 8 * t * (e + 1); }

/// beta = ema * beta + (1 - ema) * sums / sums[e], less its mean.
struct QuantileBetaUpdateArgs {
  ConstView sums;  // [e + 1] float32
  View beta;       // [e] float32
  double ema = 0.9;
};
void update_quantile_beta(const CpuStream& stream, const QuantileBetaUpdateArgs& args);
void update_quantile_beta(const CudaStream& stream, const QuantileBetaUpdateArgs& args);

/// logits = normal number of (key, step, token, expert) + bias_std * normal number of (bias_key, expert): forced
/// routing for benchmarks, balanced with bias_std 0.
struct ForcedLogitsArgs {
  View logits;  // [t, e]
  RandomKey key, bias_key;
  const StepState* state = nullptr;
  double bias_std = 0;
};
void fill_forced_logits(const CpuStream& stream, const ForcedLogitsArgs& args);
void fill_forced_logits(const CudaStream& stream, const ForcedLogitsArgs& args);

}  // namespace megatron::kernels
