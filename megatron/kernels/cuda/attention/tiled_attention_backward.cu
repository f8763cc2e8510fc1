// Gradients of attention (Dao 2023, arXiv:2307.08691, algorithm 2) in two kernels without atomic additions: one owns
// tiles of queries, the other tiles of keys; both recompute the probabilities from q, k and the log-sum-exp.
#include <algorithm>

#include "megatron/kernels/cuda/attention/attention_mma.cuh"
#include "megatron/kernels/cuda/attention/tiled_attention.h"
#include "megatron/kernels/cuda/reduce.cuh"
#include "megatron/kernels/cuda/shared_memory.cuh"

namespace megatron::kernels {
namespace {

/// A row of threads per (row, column, head).
__global__ void __launch_bounds__(kMaxRowThreads) dots_kernel(AttentionGradients args) {
  const int64_t item = row_of_block(), head = item % args.in.n, column = item / args.in.n % args.in.b;
  const int64_t row = item / args.in.n / args.in.b;
  const int width = row < args.in.s ? args.o.width : 0;
  float dot = 0;
  for (int begin = threadIdx.x * kPack; begin < width; begin += blockDim.x * kPack) {
    const int n = min(width - begin, kPack);
    const Pack o = load(args.o.x, args.o.at(row, column, head) + begin, n);
    const Pack grad = load(args.grad_o.x, args.grad_o.at(row, column, head) + begin, n);
#pragma unroll
    for (int e = 0; e < kPack; ++e) dot += o.v[e] * grad.v[e];
  }
  dot = reduce_row(dot, Plus());
  if (threadIdx.x == 0 && row < args.in.s) args.dot.at(head, column, row) = dot;
}

/// In: scores q k^T and grad_p = grad_o v^T of queries first_query + y R .. and keys first_key + x R .. of the span.
/// Out: probabilities after dropout, and the gradient of the scores without the factor `scale`.
template <class Z>
__device__ void differentiate_softmax(const AttentionGradients& args, const SequenceSpan& span, int64_t head,
                                      int64_t first_query, int64_t first_key, Scores<Z>& p, Scores<Z>& grad) {
  const AttentionInputs& in = args.in;
  const uint64_t key = in.options.dropout_key.at(in.options.first_head + head).value;
  const int64_t step = in.threshold ? in.options.state->step : 0;
#pragma unroll
  for (int i = 0; i < Z::kRows; ++i) {
    const int64_t query = first_query + threadIdx.y * Z::kRows + i, keys = first_key + threadIdx.x * Z::kRows;
    const bool is_query = query < span.query_length;
    const int64_t row = is_query ? span.query_begin + query : span.query_begin;
    const float lse = args.lse.at(head, span.batch, row), dot = args.dot.at(head, span.batch, row);
    float factors[Z::kRows];
#pragma unroll
    for (int j = 0; j < Z::kRows; ++j) factors[j] = 1;
    if (in.threshold)
      dropout_factors(in, key, step, global_row(in.layout.rows, row * in.b + span.batch), span.first_key + keys,
                      factors);
#pragma unroll
    for (int j = 0; j < Z::kRows; ++j) {
      const bool sees = lse != -INFINITY && in.sees(span, query, keys + j);
      const float logit = in.score(p[i][j]), probability = sees ? __expf(logit - lse) : 0;
      grad[i][j] = in.slope(logit) * probability * (factors[j] * grad[i][j] - dot);
      p[i][j] = probability * factors[j];
    }
  }
}

/// Block (tile of queries, head, span).
template <class Z>
__global__ void __launch_bounds__(kSide* kSide) grad_q_kernel(AttentionGradients args) {
  extern __shared__ float4 memory[];
  float* q = reinterpret_cast<float*>(memory);
  float *grad_o = q + Z::kHeadFloats, *k = grad_o + Z::kHeadFloats, *v = k + Z::kHeadFloats, *ds = v + Z::kHeadFloats;
  const AttentionInputs& in = args.in;
  const SequenceSpan span = in.layout.spans[blockIdx.z];
  const int64_t first = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * Z::kTile, head = blockIdx.y;
  if (first >= span.query_length) return;
  const int64_t row = span.query_begin + first, group = head / in.heads_per_group;
  const int64_t num_queries = min(int64_t{Z::kTile}, span.query_length - first);
  const int64_t position = span.query_offset + first;
  const int64_t end = min(int64_t{span.key_length}, position + num_queries + in.right);
  load_tile<Z, false>(in.q, row, num_queries, span.batch, head, q);
  load_tile<Z, false>(args.grad_o, row, num_queries, span.batch, head, grad_o);
  Sums<Z> sums;
  clear<Z>(sums);
  for (int64_t tile = position > in.left ? (position - in.left) / Z::kTile * Z::kTile : 0; tile < end;
       tile += Z::kTile) {
    const int64_t num_keys = min(int64_t{Z::kTile}, span.key_length - tile);
    __syncthreads();
    load_tile<Z, true>(in.k, span.key_begin + tile, num_keys, span.batch, group, k);
    load_tile<Z, true>(in.v, span.key_begin + tile, num_keys, span.batch, group, v);
    __syncthreads();
    Scores<Z> p, grad;
    multiply_heads<Z>(q, k, in.q.width, p);
    multiply_heads<Z>(grad_o, v, in.v.width, grad);
    differentiate_softmax<Z>(args, span, head, first, tile, p, grad);
    store_scores<Z>(grad, ds);
    __syncthreads();
    add_products<Z, false, true>(ds, k, sums);
  }
  float factor[Z::kRows];
#pragma unroll
  for (int i = 0; i < Z::kRows; ++i) factor[i] = in.scale;
  store_sums<Z>(args.grad_q, row, num_queries, span.batch, head, sums, factor);
}

/// Adds the contributions of the queries of one span and head to its tile of keys that begins at key `first_key`.
template <class Z>
__device__ void add_span(const AttentionGradients& args, const SequenceSpan& span, int64_t head, int64_t first_key,
                         const float* k, const float* v, float* q, float* grad_o, float* weights, Sums<Z>& grad_k,
                         Sums<Z>& grad_v) {
  const AttentionInputs& in = args.in;
  const int64_t low = max(first_key, int64_t{0}), high = min(first_key + Z::kTile, int64_t{span.key_length}) - 1;
  if (low > high) return;
  const int64_t begin = max(low - in.right - span.query_offset, int64_t{0}) / Z::kTile * Z::kTile;
  const int64_t end = min(high + in.left - span.query_offset + 1, int64_t{span.query_length});
  for (int64_t first = begin; first < end; first += Z::kTile) {
    const int64_t num_queries = min(int64_t{Z::kTile}, span.query_length - first);
    __syncthreads();
    load_tile<Z, false>(in.q, span.query_begin + first, num_queries, span.batch, head, q);
    load_tile<Z, false>(args.grad_o, span.query_begin + first, num_queries, span.batch, head, grad_o);
    __syncthreads();
    Scores<Z> p, grad;
    multiply_heads<Z>(q, k, in.q.width, p);
    multiply_heads<Z>(grad_o, v, in.v.width, grad);
    differentiate_softmax<Z>(args, span, head, first, first_key, p, grad);
    store_scores<Z>(p, weights);
    __syncthreads();
    add_products<Z, true, false>(weights, grad_o, grad_v);
    __syncthreads();
    store_scores<Z>(grad, weights);
    __syncthreads();
    add_products<Z, true, false>(weights, q, grad_k);
  }
}

/// Block (tile of keys, key head, column): all spans of the column in order, and all query heads that use the key head.
template <class Z>
__global__ void __launch_bounds__(kSide* kSide) grad_kv_kernel(AttentionGradients args) {
  extern __shared__ float4 memory[];
  float* k = reinterpret_cast<float*>(memory);
  float *v = k + Z::kHeadFloats, *q = v + Z::kHeadFloats, *grad_o = q + Z::kHeadFloats;
  float* weights = grad_o + Z::kHeadFloats;
  const AttentionInputs& in = args.in;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * Z::kTile, group = blockIdx.y, column = blockIdx.z;
  const int64_t num_keys = min(int64_t{Z::kTile}, in.s_k - first);
  load_tile<Z, true>(in.k, first, num_keys, column, group, k);
  load_tile<Z, true>(in.v, first, num_keys, column, group, v);
  Sums<Z> grad_k, grad_v;
  clear<Z>(grad_k);
  clear<Z>(grad_v);
  for (int64_t i = 0; i < in.layout.num_spans; ++i) {
    const SequenceSpan span = in.layout.spans[i];
    if (span.batch != column) continue;
    for (int64_t head = group * in.heads_per_group; head < (group + 1) * in.heads_per_group; ++head)
      add_span<Z>(args, span, head, first - span.key_begin, k, v, q, grad_o, weights, grad_k, grad_v);
  }
  float scale[Z::kRows], one[Z::kRows];
#pragma unroll
  for (int i = 0; i < Z::kRows; ++i) scale[i] = in.scale, one[i] = 1;
  store_sums<Z>(args.grad_k, first, num_keys, column, group, grad_k, scale);
  store_sums<Z>(args.grad_v, first, num_keys, column, group, grad_v, one);
}

/// Block = head.
__global__ void __launch_bounds__(kMaxRowThreads) grad_sink_kernel(AttentionGradients args, Operand grad_sink) {
  const int64_t head = blockIdx.x;
  const float sink = args.in.sink_logit(head);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < args.in.s * args.in.b; i += kMaxRowThreads) {
    const float lse = args.lse.at(head, i % args.in.b, i / args.in.b);
    if (lse != -INFINITY) sum -= expf(sink - lse) * args.dot.at(head, i % args.in.b, i / args.in.b);
  }
  sum = reduce_row(sum, Plus());
  if (threadIdx.x == 0) store_scalar(grad_sink.data, grad_sink.dtype, head, sum);
}

template <class Z>
void run(const CudaStream& stream, const AttentionGradients& args) {
  const AttentionInputs& in = args.in;
  const auto tiles = [](int64_t rows) { return static_cast<unsigned>((rows + Z::kTile - 1) / Z::kTile); };
  constexpr int kBytes = 4 * (4 * Z::kHeadFloats + Z::kScoreFloats);
  static_assert(fits_shared_memory<Z>(kBytes));
  const dim3 threads(kSide, kSide);
  if (in.s > 0 && in.layout.num_spans > 0) {
    allow_shared_memory("attention_backward", grad_q_kernel<Z>, kBytes);
    const dim3 grid(tiles(in.s), static_cast<unsigned>(in.n), static_cast<unsigned>(in.layout.num_spans));
    grad_q_kernel<Z><<<grid, threads, kBytes, stream.stream>>>(args);
    check_launch("attention_backward");
  }
  if (in.s_k == 0) return;
  allow_shared_memory("attention_backward", grad_kv_kernel<Z>, kBytes);
  const dim3 grid(tiles(in.s_k), static_cast<unsigned>(in.n / in.heads_per_group), static_cast<unsigned>(in.b));
  grad_kv_kernel<Z><<<grid, threads, kBytes, stream.stream>>>(args);
  check_launch("attention_backward");
}

}  // namespace

int64_t tiled_attention_workspace_bytes(const AttentionBackwardArgs& args) {
  return 4 * args.q.shape[0] * args.q.shape[1] * args.q.shape[2];
}

void tiled_attention_backward(const CudaStream& stream, const AttentionBackwardArgs& args, int64_t shared_bytes) {
  const AttentionInputs in = attention_inputs(args.q, args.k, args.v, args.sink, args.layout, args.options);
  if (in.b == 0 || in.n == 0) return;
  require<InternalError>(
      in.s == 0 || (args.workspace.defined() && args.workspace.num_elements() >= tiled_attention_workspace_bytes(args)),
      "[attention] the workspace is too small.");
  AttentionGradients gradients{in,
                               Heads(args.o),
                               Heads(args.grad_o),
                               Heads(args.grad_q),
                               Heads(args.grad_k),
                               Heads(args.grad_v),
                               Statistics(args.lse)};
  gradients.dot.data = static_cast<float*>(args.workspace.data);
  gradients.dot.head_stride = in.b * in.s;
  gradients.dot.column_stride = in.s;
  gradients.dot.row_stride = 1;
  clear_uncovered_rows(stream, args.layout, SpanRows::kQueries, args.grad_q, {});
  if (in.s > 0) {
    const RowBlock block(in.v.width);
    dots_kernel<<<block.blocks(in.s * in.b * in.n), block.threads(), 0, stream.stream>>>(gradients);
    check_launch("attention_backward");
  }
  if (uses_tensor_cores(in))
    mma_attention_backward(stream, gradients, shared_bytes);
  else
    dispatch_tile(std::max(in.q.width, in.v.width), shared_bytes, [&]<class Z>() { run<Z>(stream, gradients); });
  if (args.grad_sink.defined() && args.options.softmax == AttentionSoftmax::kLearnable) {
    grad_sink_kernel<<<static_cast<unsigned>(in.n), kMaxRowThreads, 0, stream.stream>>>(gradients,
                                                                                        Operand(args.grad_sink));
    check_launch("attention_backward");
  }
}

}  // namespace megatron::kernels
