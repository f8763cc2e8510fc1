// A thread for each token: routing takes a small part of a step. The arithmetic is that of router_row.h.
#include "megatron/kernels/router.h"

#include "megatron/core/box_muller.h"
#include "megatron/kernels/cuda/random.cuh"
#include "megatron/kernels/cuda/reduce.cuh"
#include "megatron/kernels/router_row.h"

namespace megatron::kernels {
namespace {

constexpr int kTokenThreads = 128, kSumThreads = 1024;

template <class Body>
__global__ void __launch_bounds__(kTokenThreads) tokens_kernel(int64_t count, Body body) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kTokenThreads + threadIdx.x;
  if (t < count) body(t);
}
template <class Body>
void for_each_token(const CudaStream& stream, const char* name, int64_t count, const Body& body) {
  if (count == 0) return;
  tokens_kernel<<<static_cast<unsigned>((count + kTokenThreads - 1) / kTokenThreads), kTokenThreads, 0,
                  stream.stream>>>(count, body);
  check_launch(name);
}

/// Float32 data of a contiguous view, or null. @throw NotSupported for fp64.
const float* floats(const ConstView& x) {
  if (!x.defined()) return nullptr;
  require<NotSupported>(x.dtype == DType::kFloat32, "[router] {} logits on CUDA: choose float32.", x.dtype);
  return x.as<float>();
}
float* floats(const View& x) { return const_cast<float*>(floats(x.read())); }
const double* doubles(const ConstView& x) { return x.defined() ? x.as<double>() : nullptr; }

struct RouteTokens {
  const float *logits, *selection, *expert_bias;
  float* probs;
  uint8_t* map;
  int64_t e;
  RouterTopkOptions options;
  __device__ void operator()(int64_t t) const {
    route_token<float>(logits + t * e, selection ? selection + t * e : nullptr, expert_bias, e, options, probs + t * e,
                       map + t * e);
  }
};

struct DifferentiateRouting {
  const float* logits;
  const uint8_t* map;
  const float* dprobs;
  float* dlogits;
  int64_t e;
  RouterTopkOptions options;
  __device__ void operator()(int64_t t) const {
    differentiate_routing<float>(logits + t * e, map + t * e, dprobs + t * e, e, options, dlogits + t * e);
  }
};

struct MarkTopk {
  const float* x;
  uint8_t* map;
  int64_t e, topk;
  __device__ void operator()(int64_t t) const {
    const float* row = x + t * e;
    uint8_t* marks = map + t * e;
    for (int64_t i = 0; i < e; ++i) marks[i] = 0;
    RankedChoice<float> choice;
    for (int64_t i = 0; i < topk; ++i) {
      choice = next_choice<float>(
          choice, 0, e, [row](int64_t expert) { return row[expert]; }, AllowAll{});
      marks[choice.index] = 1;
    }
  }
};

/// A block for each expert and sequence; the sums are of whole numbers.
__global__ void __launch_bounds__(kBlockThreads)
    count_tokens_kernel(const uint8_t* map, int64_t num_tokens, int64_t e, int64_t n, bool accumulate, float* counts) {
  const int64_t expert = blockIdx.x, sequence = blockIdx.y;
  int count = 0;
  for (int64_t t = sequence + static_cast<int64_t>(threadIdx.x) * n; t < num_tokens; t += n * kBlockThreads)
    count += map[t * e + expert];
  count = reduce_row(count, Plus());
  if (threadIdx.x != 0) return;
  float* place = counts + sequence * e + expert;
  *place = static_cast<float>(count) + (accumulate ? *place : 0);
}

__global__ void __launch_bounds__(kSumThreads)
    sum_losses_kernel(const double* row_losses, int64_t count, double factor, double* loss) {
  double sum = 0;
  for (int64_t t = threadIdx.x; t < count; t += kSumThreads) sum += row_losses[t];
  sum = reduce_row(sum, Plus());
  if (threadIdx.x == 0) *loss = factor * sum;
}
void sum_losses(const CudaStream& stream, const View& row_losses, double factor, const View& loss) {
  sum_losses_kernel<<<1, kSumThreads, 0, stream.stream>>>(row_losses.as<double>(), row_losses.shape[0], factor,
                                                          loss.as<double>());
  check_launch("sum_losses");
}

struct BalanceLosses {
  const float *logits, *counts;
  double* row_losses;
  int64_t e, n;
  RouterScore score;
  __device__ void operator()(int64_t t) const {
    row_losses[t] = balance_loss_of<float>(score, logits + t * e, counts + t % n * e, e);
  }
};
struct DifferentiateBalance {
  const float *logits, *counts, *dlogits_out;
  const double* scale;
  float* dlogits;
  int64_t e, n;
  RouterScore score;
  double factor;
  __device__ void operator()(int64_t t) const {
    differentiate_balance_loss<float>(score, logits + t * e, counts + t % n * e, dlogits_out + t * e, e,
                                      scale ? factor * *scale : factor, dlogits + t * e);
  }
};

struct ZLosses {
  const float* logits;
  double* row_losses;
  int64_t e;
  __device__ void operator()(int64_t t) const {
    const double z = log_sum_exp<float>(logits + t * e, e);
    row_losses[t] = z * z;
  }
};
struct DifferentiateZ {
  const float *logits, *dlogits_out;
  const double* scale;
  float* dlogits;
  int64_t e;
  double factor;
  __device__ void operator()(int64_t t) const {
    differentiate_z_loss<float>(logits + t * e, dlogits_out + t * e, e,
                                static_cast<float>(scale ? factor * *scale : factor), dlogits + t * e);
  }
};

/// One block: each iteration reads the whole matrix twice.
__global__ void __launch_bounds__(kSumThreads)
    sinkhorn_kernel(const float* logits, int64_t num_tokens, int64_t e, float* cost, double* row_factors,
                    double* column_factors) {
  const int64_t thread = threadIdx.x;
  for (int64_t i = thread; i < num_tokens * e; i += kSumThreads) cost[i] = expf(logits[i]);
  for (int64_t i = thread; i < e; i += kSumThreads) column_factors[i] = 1;
  double change = 1;
  while (change > kSinkhornTolerance) {
    __syncthreads();
    for (int64_t t = thread; t < num_tokens; t += kSumThreads)
      row_factors[t] = sinkhorn_row_factor<float>(cost + t * e, column_factors, e, num_tokens);
    __syncthreads();
    double mine = 0;
    for (int64_t i = thread; i < e; i += kSumThreads) {
      const double factor = sinkhorn_column_factor<float>(cost + i, row_factors, e, num_tokens);
      mine += fabs(factor - column_factors[i]) / static_cast<double>(e);
      column_factors[i] = factor;
    }
    change = reduce_row(mine, Plus());
  }
  __syncthreads();
  for (int64_t i = thread; i < num_tokens * e; i += kSumThreads)
    cost[i] = static_cast<float>(column_factors[i % e] * static_cast<double>(cost[i]) * row_factors[i / e]);
}

__global__ void __launch_bounds__(kBlockThreads)
    expert_bias_kernel(const float* counts, int64_t e, double rate, float* bias) {
  const double mean = mean_count(counts, e);
  for (int64_t i = threadIdx.x; i < e; i += kBlockThreads) bias[i] += bias_step(counts[i], mean, rate);
}

struct QuantileThresholds {
  const float *logits, *beta;
  float *values, *thresholds;
  int64_t e, topk;
  __device__ void operator()(int64_t t) const {
    for (int64_t i = 0; i < e; ++i) values[t * e + i] = logits[t * e + i] - beta[i];
    thresholds[t] = admission_threshold<float>(values + t * e, e, topk);
  }
};

/// Bits that increase with the number.
__device__ uint32_t ordered_bits(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits >> 31 != 0 ? ~bits : bits | uint32_t{1} << 31;
}
__device__ float number_of(uint32_t ordered) {
  return __uint_as_float(ordered >> 31 != 0 ? ordered & 0x7FFFFFFFu : ~ordered);
}

/// A block for each expert finds the (rank + 1)-th largest margin bit by bit.
__global__ void __launch_bounds__(kSumThreads)
    quantile_kernel(const float* logits, const float* thresholds, int64_t num_tokens, int64_t e, int64_t rank,
                    float* sums) {
  const int64_t expert = blockIdx.x;
  uint32_t found = 0;
  for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1) {
    int64_t count = 0;
    for (int64_t t = threadIdx.x; t < num_tokens; t += kSumThreads)
      count += ordered_bits(logits[t * e + expert] - thresholds[t]) >= (found | bit);
    if (reduce_row(count, Plus()) > rank) found |= bit;
  }
  if (threadIdx.x != 0) return;
  sums[expert] += number_of(found);
  if (expert == 0) sums[e] += 1;
}

__global__ void __launch_bounds__(kBlockThreads)
    quantile_beta_kernel(const float* sums, int64_t e, double ema, float* beta) {
  const double mean = mean_moved_beta(sums, beta, e, ema);
  __syncthreads();  // all have read the old ones
  for (int64_t i = threadIdx.x; i < e; i += kBlockThreads)
    beta[i] = static_cast<float>(moved_beta(sums, beta, i, e, ema) - mean);
}

__device__ double first_normal(uint32_t radius_draw, uint32_t angle_draw) {
  return sqrt(-2 * series_log((radius_draw + 0.5) * 0x1p-32)) * turn(angle_draw).cosine;
}
__device__ double second_normal(uint32_t radius_draw, uint32_t angle_draw) {
  return sqrt(-2 * series_log((radius_draw + 0.5) * 0x1p-32)) * turn(angle_draw).sine;
}
struct ForcedLogits {
  float* logits;
  uint64_t key, bias_key;
  const StepState* state;
  int64_t e;
  double bias_std;
  __device__ void operator()(int64_t t) const {
    for (int64_t i = 0; i < e; ++i) {
      const Draws r = draw_four(key, state->step, t, i / 2), b = draw_four(bias_key, 0, 0, i / 4);
      const double noise = i % 2 == 0 ? first_normal(r.w[0], r.w[1]) : first_normal(r.w[2], r.w[3]);
      const uint32_t radius = i % 4 < 2 ? b.w[0] : b.w[2], angle = i % 4 < 2 ? b.w[1] : b.w[3];
      const double bias = i % 2 == 0 ? first_normal(radius, angle) : second_normal(radius, angle);
      logits[t * e + i] = static_cast<float>(noise + bias_std * bias);
    }
  }
};

}  // namespace

void router_topk_forward(const CudaStream& stream, const RouterTopkForwardArgs& args) {
  for_each_token(stream, "router_topk_forward", args.logits.shape[0],
                 RouteTokens{floats(args.logits), floats(args.selection), floats(args.expert_bias), floats(args.probs),
                             args.map.as<uint8_t>(), args.logits.shape[1], args.options});
}

void router_topk_backward(const CudaStream& stream, const RouterTopkBackwardArgs& args) {
  for_each_token(stream, "router_topk_backward", args.logits.shape[0],
                 DifferentiateRouting{floats(args.logits), args.map.as<uint8_t>(), floats(args.dprobs),
                                      floats(args.dlogits), args.logits.shape[1], args.options});
}

void topk_map(const CudaStream& stream, const TopkMapArgs& args) {
  for_each_token(stream, "topk_map", args.x.shape[0],
                 MarkTopk{floats(args.x), args.map.as<uint8_t>(), args.x.shape[1], args.topk});
}

void count_tokens(const CudaStream& stream, const CountTokensArgs& args) {
  const int64_t e = args.map.shape[1], n = args.counts.shape[0];
  if (e == 0 || n == 0) return;
  count_tokens_kernel<<<dim3(static_cast<unsigned>(e), static_cast<unsigned>(n)), kBlockThreads, 0, stream.stream>>>(
      args.map.as<uint8_t>(), args.map.shape[0], e, n, args.accumulate, args.counts.as<float>());
  check_launch("count_tokens");
}

void balance_loss_forward(const CudaStream& stream, const BalanceLossForwardArgs& args) {
  for_each_token(stream, "balance_loss_forward", args.logits.shape[0],
                 BalanceLosses{floats(args.logits), floats(args.counts), args.row_losses.as<double>(),
                               args.logits.shape[1], args.counts.shape[0], args.score});
  sum_losses(stream, args.row_losses, args.factor, args.loss);
}

void balance_loss_backward(const CudaStream& stream, const BalanceLossBackwardArgs& args) {
  for_each_token(
      stream, "balance_loss_backward", args.logits.shape[0],
      DifferentiateBalance{floats(args.logits), floats(args.counts), floats(args.dlogits_out), doubles(args.scale),
                           floats(args.dlogits), args.logits.shape[1], args.counts.shape[0], args.score, args.factor});
}

void z_loss_forward(const CudaStream& stream, const ZLossForwardArgs& args) {
  for_each_token(stream, "z_loss_forward", args.logits.shape[0],
                 ZLosses{floats(args.logits), args.row_losses.as<double>(), args.logits.shape[1]});
  sum_losses(stream, args.row_losses, args.factor, args.loss);
}

void z_loss_backward(const CudaStream& stream, const ZLossBackwardArgs& args) {
  for_each_token(stream, "z_loss_backward", args.logits.shape[0],
                 DifferentiateZ{floats(args.logits), floats(args.dlogits_out), doubles(args.scale),
                                floats(args.dlogits), args.logits.shape[1], args.factor});
}

void sinkhorn(const CudaStream& stream, const SinkhornArgs& args) {
  const int64_t num_tokens = args.logits.shape[0], e = args.logits.shape[1];
  if (num_tokens == 0) return;
  auto* row_factors = static_cast<double*>(args.workspace.data);
  sinkhorn_kernel<<<1, kSumThreads, 0, stream.stream>>>(floats(args.logits), num_tokens, e, floats(args.values),
                                                        row_factors, row_factors + num_tokens);
  check_launch("sinkhorn");
}

void update_expert_bias(const CudaStream& stream, const ExpertBiasUpdateArgs& args) {
  expert_bias_kernel<<<1, kBlockThreads, 0, stream.stream>>>(floats(args.counts), args.counts.shape[0], args.rate,
                                                             floats(args.expert_bias));
  check_launch("update_expert_bias");
}

void quantile_balance(const CudaStream& stream, const QuantileBalanceArgs& args) {
  const int64_t t = args.logits.shape[0], e = args.logits.shape[1];
  if (t == 0) return;
  auto* thresholds = static_cast<float*>(args.workspace.data);
  for_each_token(
      stream, "quantile_thresholds", t,
      QuantileThresholds{floats(args.logits), floats(args.beta), floats(args.values), thresholds, e, args.topk});
  if (!args.sums.defined()) return;
  quantile_kernel<<<static_cast<unsigned>(e), kSumThreads, 0, stream.stream>>>(floats(args.logits), thresholds, t, e,
                                                                               t * args.topk / e, floats(args.sums));
  check_launch("quantile_balance");
}

void update_quantile_beta(const CudaStream& stream, const QuantileBetaUpdateArgs& args) {
  quantile_beta_kernel<<<1, kBlockThreads, 0, stream.stream>>>(floats(args.sums), args.beta.shape[0], args.ema,
                                                               floats(args.beta));
  check_launch("update_quantile_beta");
}

void fill_forced_logits(const CudaStream& stream, const ForcedLogitsArgs& args) {
  for_each_token(stream, "fill_forced_logits", args.logits.shape[0],
                 ForcedLogits{floats(args.logits), args.key.value, args.bias_key.value, args.state,
                              args.logits.shape[1], args.bias_std});
}

}  // namespace megatron::kernels
