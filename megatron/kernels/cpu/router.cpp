#include "megatron/kernels/router.h"

#include <algorithm>
#include <functional>

#include "megatron/core/box_muller.h"
#include "megatron/kernels/cpu/convert.h"
#include "megatron/kernels/cpu/parallel.h"
#include "megatron/kernels/router_row.h"

namespace megatron::kernels {
namespace {

/// row(z, t) for all rows of a contiguous [t, e], dealt to threads.
template <class Row>
void for_each_token(const CpuStream& stream, const ConstView& x, Row&& row) {
  // An element is worth several: exponentials and comparisons.
  parallel_for(stream, x.shape[0], 16 * x.shape[1], [&](int64_t t, int64_t end) {
    for (; t < end; ++t) row(t);
  });
}

template <class C>
const C* row_of(const ConstView& x, int64_t t) {
  return x.defined() ? x.as<C>() + t * x.shape[1] : nullptr;
}
template <class C>
C* row_of(const View& x, int64_t t) {
  return x.as<C>() + t * x.shape[1];
}

double scale_of(const ConstView& scale) { return scale.defined() ? *scale.as<double>() : 1; }

/// loss = factor * sum of the rows' losses, in the order of the rows.
void sum_row_losses(const View& row_losses, double factor, const View& loss) {
  double sum = 0;
  for (int64_t t = 0; t < row_losses.shape[0]; ++t) sum += row_losses.as<double>()[t];
  *loss.as<double>() = factor * sum;
}

}  // namespace

void router_topk_forward(const CpuStream& stream, const RouterTopkForwardArgs& args) {
  const float* bias = args.expert_bias.defined() ? args.expert_bias.as<float>() : nullptr;
  dispatch_compute(args.logits.dtype, [&]<class C>() {
    for_each_token(stream, args.logits, [&](int64_t t) {
      route_token<C>(row_of<C>(args.logits, t), row_of<C>(args.selection, t), bias, args.logits.shape[1], args.options,
                     row_of<C>(args.probs, t), row_of<uint8_t>(args.map, t));
    });
  });
}

void router_topk_backward(const CpuStream& stream, const RouterTopkBackwardArgs& args) {
  dispatch_compute(args.logits.dtype, [&]<class C>() {
    for_each_token(stream, args.logits, [&](int64_t t) {
      differentiate_routing<C>(row_of<C>(args.logits, t), row_of<uint8_t>(args.map, t), row_of<C>(args.dprobs, t),
                               args.logits.shape[1], args.options, row_of<C>(args.dlogits, t));
    });
  });
}

void topk_map(const CpuStream& stream, const TopkMapArgs& args) {
  const int64_t e = args.x.shape[1];
  dispatch_compute(args.x.dtype, [&]<class C>() {
    for_each_token(stream, args.x, [&](int64_t t) {
      const C* x = row_of<C>(args.x, t);
      uint8_t* map = row_of<uint8_t>(args.map, t);
      std::fill_n(map, e, uint8_t{0});
      choose_experts<C>(
          e, {.topk = args.topk}, [x](int64_t i) { return x[i]; }, [map](int64_t i) { map[i] = 1; });
    });
  });
}

void count_tokens(const CpuStream&, const CountTokensArgs& args) {
  const int64_t e = args.map.shape[1], n = args.counts.shape[0];
  auto* counts = args.counts.as<float>();
  if (!args.accumulate) std::fill_n(counts, n * e, 0.0F);
  for (int64_t t = 0; t < args.map.shape[0]; ++t)
    for (int64_t i = 0; i < e; ++i) counts[t % n * e + i] += row_of<uint8_t>(args.map, t)[i];
}

void balance_loss_forward(const CpuStream& stream, const BalanceLossForwardArgs& args) {
  const int64_t e = args.logits.shape[1], n = args.counts.shape[0];
  dispatch_compute(args.logits.dtype, [&]<class C>() {
    for_each_token(stream, args.logits, [&](int64_t t) {
      args.row_losses.as<double>()[t] =
          balance_loss_of(args.score, row_of<C>(args.logits, t), row_of<float>(args.counts, t % n), e);
    });
  });
  sum_row_losses(args.row_losses, args.factor, args.loss);
}

void balance_loss_backward(const CpuStream& stream, const BalanceLossBackwardArgs& args) {
  const int64_t e = args.logits.shape[1], n = args.counts.shape[0];
  const double factor = args.factor * scale_of(args.scale);
  dispatch_compute(args.logits.dtype, [&]<class C>() {
    for_each_token(stream, args.logits, [&](int64_t t) {
      differentiate_balance_loss(args.score, row_of<C>(args.logits, t), row_of<float>(args.counts, t % n),
                                 row_of<C>(args.dlogits_out, t), e, factor, row_of<C>(args.dlogits, t));
    });
  });
}

void z_loss_forward(const CpuStream& stream, const ZLossForwardArgs& args) {
  dispatch_compute(args.logits.dtype, [&]<class C>() {
    for_each_token(stream, args.logits, [&](int64_t t) {
      const double z = log_sum_exp(row_of<C>(args.logits, t), args.logits.shape[1]);
      args.row_losses.as<double>()[t] = z * z;
    });
  });
  sum_row_losses(args.row_losses, args.factor, args.loss);
}

void z_loss_backward(const CpuStream& stream, const ZLossBackwardArgs& args) {
  const double factor = args.factor * scale_of(args.scale);
  dispatch_compute(args.logits.dtype, [&]<class C>() {
    for_each_token(stream, args.logits, [&](int64_t t) {
      differentiate_z_loss(row_of<C>(args.logits, t), row_of<C>(args.dlogits_out, t), args.logits.shape[1],
                           static_cast<C>(factor), row_of<C>(args.dlogits, t));
    });
  });
}

void sinkhorn(const CpuStream&, const SinkhornArgs& args) {
  const int64_t num_tokens = args.logits.shape[0], e = args.logits.shape[1];
  if (num_tokens == 0) return;
  auto* row_factors = reinterpret_cast<double*>(args.workspace.as<uint8_t>());
  double* column_factors = row_factors + num_tokens;
  dispatch_compute(args.logits.dtype, [&]<class C>() {
    const C* z = args.logits.as<C>();
    C* cost = args.values.as<C>();
    for (int64_t i = 0; i < num_tokens * e; ++i) cost[i] = std::exp(z[i]);
    std::fill_n(column_factors, e, 1.0);
    double change = 1;
    while (change > kSinkhornTolerance) {
      for (int64_t t = 0; t < num_tokens; ++t)
        row_factors[t] = sinkhorn_row_factor(cost + t * e, column_factors, e, num_tokens);
      change = 0;
      for (int64_t i = 0; i < e; ++i) {
        const double factor = sinkhorn_column_factor(cost + i, row_factors, e, num_tokens);
        change += std::abs(factor - column_factors[i]) / static_cast<double>(e);
        column_factors[i] = factor;
      }
    }
    for (int64_t t = 0; t < num_tokens; ++t)
      for (int64_t i = 0; i < e; ++i)
        cost[t * e + i] = static_cast<C>(column_factors[i] * static_cast<double>(cost[t * e + i]) * row_factors[t]);
  });
}

void update_expert_bias(const CpuStream&, const ExpertBiasUpdateArgs& args) {
  const int64_t e = args.counts.shape[0];
  const auto* counts = args.counts.as<float>();
  auto* bias = args.expert_bias.as<float>();
  const double mean = mean_count(counts, e);
  for (int64_t i = 0; i < e; ++i) bias[i] += bias_step(counts[i], mean, args.rate);
}

void quantile_balance(const CpuStream& stream, const QuantileBalanceArgs& args) {
  const int64_t t = args.logits.shape[0], e = args.logits.shape[1];
  const auto* beta = args.beta.as<float>();
  dispatch_compute(args.logits.dtype, [&]<class C>() {
    auto* thresholds = reinterpret_cast<C*>(t > 0 ? args.workspace.as<uint8_t>() : nullptr);
    C* margins = thresholds + t;  // [e, t]
    for_each_token(stream, args.logits, [&](int64_t token) {
      const C* z = row_of<C>(args.logits, token);
      C* values = row_of<C>(args.values, token);
      for (int64_t i = 0; i < e; ++i) values[i] = z[i] - static_cast<C>(beta[i]);
      thresholds[token] = admission_threshold(values, e, args.topk);
      for (int64_t i = 0; i < e; ++i) margins[i * t + token] = z[i] - thresholds[token];
    });
    if (!args.sums.defined() || t == 0) return;
    auto* sums = args.sums.as<float>();
    const int64_t rank = t * args.topk / e;
    parallel_for(stream, e, 16 * t, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) {
        C* mine = margins + i * t;
        std::nth_element(mine, mine + rank, mine + t, std::greater<>());
        sums[i] += static_cast<float>(mine[rank]);
      }
    });
    sums[e] += 1;
  });
}

void update_quantile_beta(const CpuStream&, const QuantileBetaUpdateArgs& args) {
  const int64_t e = args.beta.shape[0];
  const auto* sums = args.sums.as<float>();
  auto* beta = args.beta.as<float>();
  const double mean = mean_moved_beta(sums, beta, e, args.ema);
  for (int64_t i = 0; i < e; ++i) beta[i] = static_cast<float>(moved_beta(sums, beta, i, e, args.ema) - mean);
}

void fill_forced_logits(const CpuStream& stream, const ForcedLogitsArgs& args) {
  const int64_t e = args.logits.shape[1];
  dispatch_compute(args.logits.dtype, [&]<class C>() {
    for_each_token(stream, args.logits, [&](int64_t t) {
      C* z = row_of<C>(args.logits, t);
      for (int64_t i = 0; i < e; ++i) {
        const auto draws = draw4(args.key, args.state->step, t, i / 2);
        const NormalPair pair = i % 2 == 0 ? box_muller(draws[0], draws[1]) : box_muller(draws[2], draws[3]);
        z[i] = static_cast<C>(pair.first + args.bias_std * normal(args.bias_key, i));
      }
    });
  });
}

}  // namespace megatron::kernels
