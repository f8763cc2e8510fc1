// The router's ops on logits: the choice of experts with its probabilities, and auxiliary losses.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/kernels/expert_capacity.h"
#include "megatron/kernels/router.h"

namespace megatron {

/// The routes of tokens. Dense, as Megatron Core's: t tokens, e experts.
struct Routing {
  Tensor probs;  // [t, e] float32 or float64; 0 where a token does not go
  Tensor map;    // [t, e] uint8
};

/// The experts of each token. @param logits [t, e]. @param selection [t, e], values to choose by in place of the
/// scores; may be undefined. @param expert_bias [e] float32, added to the values to choose by; may be undefined.
/// @throw ConfigError if the options do not fit e experts.
Routing router_topk(Context& ctx, const Tensor& logits, const Tensor& selection, const Tensor& expert_bias,
                    const kernels::RouterTopkOptions& options);

/// The values by which Sinkhorn's balanced routing chooses; they have no gradient.
Tensor sinkhorn_values(const Context& ctx, const Tensor& logits);

struct TokenDropOptions {
  int64_t capacity = 0;  // tokens of an expert; kernels::expert_capacity
  kernels::TokenDropPolicy policy = kernels::TokenDropPolicy::kProbs;
  bool pad = false;  // each expert has exactly that many, as far as there are tokens
};
/// The routing with at most `capacity` tokens for each expert.
Routing drop_tokens(Context& ctx, const Routing& routing, const TokenDropOptions& options);

/// The map with the tokens of each expert padded to a multiple; padded tokens have probability 0.
Tensor pad_routing_map(const Context& ctx, const Tensor& map, int64_t multiple);

/// Marks the topk largest logits of each token: what balance losses count, whatever the routing.
Tensor topk_map(const Context& ctx, const Tensor& logits, int64_t topk);
/// counts (+)= tokens of each expert, [n, e] float32, of the sequences t mod n.
void count_tokens(const Context& ctx, const Tensor& map, Tensor& counts, bool accumulate);
/// One step of the rule that keeps experts balanced without a loss.
void update_expert_bias(const Context& ctx, const Tensor& counts, Tensor& expert_bias, double rate);

/// The same logits, with a loss attached: `coeff` times its gradient is added to theirs on the way back.
struct LogitsAndLoss {
  Tensor logits;
  Tensor loss;  // [1] float64, without the coefficient
};
/// Load balancing: e / t times the sum over t and i of p[t, i] times the share of expert i in the counted tokens of
/// sequence t mod n (kernels::BalanceLossForwardArgs); 1 if all experts are alike.
/// @param counts [n, e] float32. @param scale [1] float64, the gradient of coeff * loss; undefined: 1.
LogitsAndLoss attach_balance_loss(Context& ctx, const Tensor& logits, const Tensor& counts, const Tensor& scale,
                                  kernels::RouterScore score, double coeff);
/// The mean over t of log(sum(exp(logits[t])))^2.
LogitsAndLoss attach_z_loss(Context& ctx, const Tensor& logits, const Tensor& scale, double coeff);

/// The values by which quantile balancing chooses: logits - beta. They have no gradient.
/// @param sums [e + 1] float32: where the new betas of a step and the number of them are added up; undefined in
/// evaluation. @param topk below e.
Tensor quantile_values(const Context& ctx, const Tensor& logits, const Tensor& beta, Tensor sums, int64_t topk);
/// The end of a step: beta moves towards the mean of the sums.
void update_quantile_beta(const Context& ctx, const Tensor& sums, Tensor& beta, double ema);

/// Random logits of the same shape for benchmarks, whose gradient is passed on to `logits`. @param path names the
/// random numbers. @param bias_std of a bias for each expert, the same in each step; 0: balanced.
Tensor force_routing(Context& ctx, const Tensor& logits, std::string_view path, double bias_std);

}  // namespace megatron
